-- The log of a topic with groups refuses a message without one, from whomever: an ordered subscription needs it. It is
-- a trigger, because a constraint would write the whole log anew, and be refused for what is there already. A row that
-- closes a hole is no message; see close_holes.
-- DELIMITER is for the client programs: there are semicolons inside the trigger.
-- A crash before the end leaves tables that are not in the catalogue: see create. One in an upgrade leaves the trigger,
-- which the next one makes anew.
drop trigger if exists {log}__grouped;
delimiter //
create trigger {log}__grouped before insert on {log} for each row
    if new.group_key is null and new.pushed_at is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The topic has groups, and none is given. Give the message its group.';
    end if //
delimiter ;
