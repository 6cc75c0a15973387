-- {queue}_history: the last p_n finished messages with ids from p_low to p_high, highest id first; for observers.
-- Locks: none.
create or replace function {queue}_history(
    p_n integer default 10,
    p_low bigint default 0,
    p_high bigint default 9223372036854775807
) returns table (
    {message_types}
) language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        return query
            {sql history};
    end;
    $$;
revoke all on function {queue}_history from public;
