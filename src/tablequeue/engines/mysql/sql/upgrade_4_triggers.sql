-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
drop trigger if exists {queue}_pushed;
drop trigger if exists {queue}_left;
drop trigger if exists {queue}_moved;
