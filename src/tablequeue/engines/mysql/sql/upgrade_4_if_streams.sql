-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
-- Only if there is such a table, and no queue has that name.
rename table {queue}_streams to {queue}__streams;
