-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
alter table {queue}_streams rename to {table}__streams;
