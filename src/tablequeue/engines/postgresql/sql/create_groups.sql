-- What a grouped queue has besides: its messages are pushed as blocked, and one of each group, the front, is not.
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress.
-- The triggers only note, in the transaction of the change, which groups to look at: those that got a message, and
-- those that may have lost their front. Notes are inserts, which nobody waits for; arrange reads them when they are
-- committed. To decide in the trigger would miss what others have not committed yet, or wait for it.
create unique index {table}_front on {queue} (group_key) where {front};
create table {turns} (
    id bigint generated always as identity primary key,
    group_key text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
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
create trigger {table}_pushed after insert on {queue}
    referencing new table as pushed for each statement execute function {turn}();
create trigger {table}_left after delete on {queue}
    referencing old table as removed for each statement execute function {turn}();
create trigger {table}_moved after update on {queue}
    for each row when (new.state in ('dead', 'blocked') and old.state <> new.state) execute function {turn}();
