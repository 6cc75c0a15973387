-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers. Locks: none.
create or replace function {queue}_stats(
    p_now timestamptz default null
) returns table (
    ready bigint, scheduled bigint, in_progress bigint, dead bigint, blocked bigint, oldest_age float8, finished bigint
) language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        return query select live.*, ended.* from (
            {sql stats}
        ) as live, (
            -- [keep]
            {sql stats_history}
            -- [end]
            -- [none]
            select cast(null as bigint)
            -- [end]
        ) as ended;
    end;
    $$;
revoke all on function {queue}_stats from public;
