-- {queue}_peek: the first p_n messages of a state with ids above p_after, claiming none; for observers. Locks: none.
create or replace function {queue}_peek(
    p_n integer default 10,
    p_state text default 'ready',
    p_after bigint default 0
) returns table (
    {message_types}
) language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
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
                    {sql peek_in_progress};
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
revoke all on function {queue}_peek from public;
