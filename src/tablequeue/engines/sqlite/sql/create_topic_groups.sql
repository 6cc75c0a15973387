-- The log of a topic with groups refuses a message without one, from whomever: an ordered subscription needs it. It is
-- a trigger, because SQLite adds no constraint to a table that is there.
-- Locks: the database. Runs in one transaction: a crash leaves nothing.
create trigger {table}__grouped before insert on {log} when new.group_key is null
    begin
        select raise(abort, 'the topic has groups, and none is given');
    end;
