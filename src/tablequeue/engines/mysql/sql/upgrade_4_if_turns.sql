-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
rename table {queue}_turns to {queue}__turns;
