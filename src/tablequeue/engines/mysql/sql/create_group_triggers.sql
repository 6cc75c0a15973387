-- The triggers of a grouped queue only note which groups to look at: those that got a message, and those that may have
-- lost their head. They cannot do more, for a trigger may not change the table it belongs to; promote reads the notes.
-- INSERT ... VALUES: an INSERT ... SELECT would lock the ids of the notes until the end of its statement.
-- DELIMITER is for the client programs: there are semicolons inside the triggers.
-- A crash before the end leaves tables that are not in the catalogue: see create.
delimiter //
create trigger {queue}__pushed after insert on {queue} for each row
    insert into {turns} (group_key) values (new.group_key) //
create trigger {queue}__left after delete on {queue} for each row
    if old.state <> 'dead' then
        insert into {turns} (group_key) values (old.group_key);
    end if //
create trigger {queue}__moved after update on {queue} for each row
    if new.state in ('dead', 'blocked') and old.state <> new.state then
        insert into {turns} (group_key) values (new.group_key);
    end if //
delimiter ;
