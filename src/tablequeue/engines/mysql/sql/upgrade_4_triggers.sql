-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
drop trigger if exists {queue}_pushed;
drop trigger if exists {queue}_left;
drop trigger if exists {queue}_moved;
