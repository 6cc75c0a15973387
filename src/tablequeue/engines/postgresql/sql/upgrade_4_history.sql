-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
alter index if exists {queue}_finished rename to {table}__finished;
