-- Procedures that read.

-- name: history
-- {queue}_history: the last p_n finished messages with ids from p_low to p_high, highest id first; for observers.
-- Locks: none.
create or replace function {queue}_history(
    p_n integer default 10,
    p_low bigint default 0,
    p_high bigint default 9223372036854775807
) returns table (
    {message_types}
) language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        return query
            {sql history};
    end;
    $$;

-- name: stats
-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers. Locks: none.
create or replace function {queue}_stats(
    p_now timestamptz default null
) returns table (
    ready bigint, scheduled bigint, in_progress bigint, dead bigint, blocked bigint, oldest_age float8, finished bigint
) language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
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
        -- [queue]
        return query select live.*, ended.* from (
            {sql stats}
        ) as live, (
        -- [queue keep]
            {sql stats_history}
        -- [none]
            select cast(null as bigint)
        -- [queue]
        ) as ended;
        -- [end]
    end;
    $$;

-- name: peek
-- {queue}_peek: the first p_n messages of a state with ids above p_after, claiming none; for observers. Locks: none.
create or replace function {queue}_peek(
    p_n integer default 10,
    p_state text default 'ready',
    p_after bigint default 0
) returns table (
    {message_types}
) language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        -- The state is spelled into each statement: its index serves no parameter.
        case p_state
            when 'ready' then
                return query
                    {sql peek state=ready};
            when 'scheduled' then
                return query
                    {sql peek state=scheduled};
            when 'in_progress' then
                return query
                    {sql peek state=in_progress};
            when 'dead' then
                return query
                    {sql peek state=dead};
            when 'blocked' then
                return query
                    {sql peek state=blocked};
            else
                raise exception using errcode = 'TQ001', message = coalesce(p_state, 'null') || ' is no state.',
                    hint = 'Give one of: ready, scheduled, in_progress, dead, blocked.';
        end case;
    end;
    $$;

-- name: lost
-- {queue}_lost: the first p_n messages that were claimed at most once, p_age seconds ago (else {lease}) or longer, and
-- not acknowledged; for observers. Locks: none.
create or replace function {queue}_lost(
    p_n integer default 10,
    p_age float8 default {lease},
    p_now timestamptz default null
) returns table (
    {message_types}
) language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        return query
            {sql lost after=0};
    end;
    $$;
