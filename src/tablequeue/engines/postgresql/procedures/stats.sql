-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers. Locks: none.
create or replace function {queue}_stats(
    p_now timestamptz default null
) returns table (
    ready bigint, scheduled bigint, in_progress bigint, dead bigint, blocked bigint, oldest_age float8, finished bigint
) language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        -- [subscription]
        return query
            select
                live.ready + log.ready, live.scheduled, live.in_progress + cast(log.in_progress as bigint), live.dead,
                live.blocked, greatest(live.oldest_age, log.oldest_age), ended.finished + cast(log.finished as bigint)
            from (
                {sql stats}
            ) as live (ready, scheduled, in_progress, dead, blocked, oldest_age), (
                {sql stats_history}
            ) as ended (finished), (
                {sql range_stats}
            ) as log (ready, in_progress, finished, oldest_age);
        -- [end]
        -- [queue]
        return query select live.*, ended.* from (
            {sql stats}
        ) as live, (
        -- [end]
        -- [queue keep]
            {sql stats_history}
        -- [end]
        -- [none]
            select cast(null as bigint)
        -- [end]
        -- [queue]
        ) as ended;
        -- [end]
    end;
    $$;
revoke all on function {queue}_stats from public;
