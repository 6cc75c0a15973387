-- {queue}_lost: the first p_n messages that were claimed at most once, p_age seconds ago (else {lease}) or longer, and
-- not acknowledged; for observers. Locks: none.
create or replace function {queue}_lost(
    p_n integer default 10,
    p_age float8 default {lease},
    p_now timestamptz default null
) returns table (
    {message_types}
) language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    begin
        return query
            {sql lost};
    end;
    $$;
revoke all on function {queue}_lost from public;
