-- {queue}_take: remove up to p_n ready messages, for consumers; in the order of the queue. They are finished when the
-- transaction commits.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
create or replace function {queue}_take(
    p_n integer default 1,
    p_consumer text default null,
    p_now timestamptz default null
) returns table (
    {claimed_types}
) language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        if p_n is null or p_n < 1 then
            raise exception using errcode = 'TQ001', message = 'n is ' || coalesce(cast(p_n as text), 'null') || '.',
                hint = 'Give a whole number from 1 on.';
        end if;
        return query
            select message.*
            from {queue}_remove(p_n, coalesce(p_consumer, session_user), null, p_now) as message
            -- [in_order]
            order by {order_by};
            -- [end]
            -- [fair]
            ; -- they come in the order of the turns
            -- [end]
    end;
    $$;
revoke all on function {queue}_take from public;
