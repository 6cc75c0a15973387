-- The triggers of a grouped queue only note, in the transaction of the change, which groups to look at: those that got
-- a message, and those that may have lost their head. Notes are inserts, for which no transaction waits; promote reads
-- them when they are committed. To decide in the trigger would miss what others have not committed yet, or wait for it.
-- They also fire in sessions whose session_replication_role is replica: else groups would stop.
create function {turn}() returns trigger language plpgsql as $$
    begin
        if tg_op = 'INSERT' then
            insert into {turns} (group_key) select group_key from pushed group by group_key order by min(id);
        elsif tg_op = 'DELETE' then
            insert into {turns} (group_key)
            select group_key from removed where state <> 'dead' group by group_key order by min(id);
        else
            insert into {turns} (group_key) values (new.group_key);
        end if;
        return null;
    end;
    $$;
create trigger {table}__pushed after insert on {queue}
    referencing new table as pushed for each statement execute function {turn}();
create trigger {table}__left after delete on {queue}
    referencing old table as removed for each statement execute function {turn}();
create trigger {table}__moved after update on {queue}
    for each row when (new.state in ('dead', 'blocked') and old.state <> new.state) execute function {turn}();
alter table {queue} enable always trigger {table}__pushed;
alter table {queue} enable always trigger {table}__left;
alter table {queue} enable always trigger {table}__moved;
