-- From schema version 5 to 6: the triggers of a grouped queue know open runs. create_heads makes them anew.
-- Locks: the database. Runs in one transaction: a crash leaves version 5.
drop trigger if exists {table}__pushed;
drop trigger if exists {table}__moved;
drop trigger if exists {table}__left;
