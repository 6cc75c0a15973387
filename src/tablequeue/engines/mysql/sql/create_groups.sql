-- What a grouped queue has besides: its messages are pushed as blocked, and one of each group, the front, is not.
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress.
-- The triggers only note which groups to look at: those that got a message, and those that may have lost their front.
-- They cannot do more, for a trigger may not change the table it belongs to; arrange reads the notes.
-- INSERT ... VALUES: an INSERT ... SELECT would lock the ids of the notes until the end of its statement.
-- DELIMITER is for the client programs: there are semicolons inside the triggers.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column front varbinary(1020) generated always as (case when {front} then group_key end) stored,
    add unique key {table}_front (front),
    add key {table}_blocked (group_key, state, id);
create table {turns} (
    id bigint not null auto_increment primary key,
    group_key varbinary(1020) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: turns of {table}';
delimiter //
create trigger {queue}_pushed after insert on {queue} for each row
    insert into {turns} (group_key) values (new.group_key) //
create trigger {queue}_left after delete on {queue} for each row
    if old.state <> 'dead' then
        insert into {turns} (group_key) values (old.group_key);
    end if //
create trigger {queue}_moved after update on {queue} for each row
    if new.state in ('dead', 'blocked') and old.state <> new.state then
        insert into {turns} (group_key) values (new.group_key);
    end if //
delimiter ;
