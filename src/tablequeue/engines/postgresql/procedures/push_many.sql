-- {queue}_push_many: push each element of a JSON array as a payload, for producers. Returns their ids, in that order.
-- [bytes]
-- The payloads are strings in base64.
-- [end]
-- Locks: none that another transaction waits for. All of them are pushed, or none.
create or replace function {queue}_push_many(
    p_messages json,
    p_headers json default null,
    p_delay float8 default null,
    p_due timestamptz default null,
    p_priority integer default null,
    p_group text default null,
    p_producer text default null,
    p_now timestamptz default null,
    p_expires float8 default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    declare
        pushed bigint;
        waited_for boolean;
        -- [json]
        p_payloads text[] := array(select cast(value as text) from json_array_elements(p_messages));
        -- [end]
        -- [text]
        p_payloads text[] := array(select value from json_array_elements_text(p_messages));
        -- [end]
        -- [bytes]
        p_payloads bytea[] := array(select decode(value, 'base64') from json_array_elements_text(p_messages));
        -- [end]
    begin
        perform {queue}_check(p_delay, p_due, p_priority, p_group, null, 'raise', p_expires);
        p_priority := coalesce(p_priority, 0);
        p_producer := coalesce(p_producer, session_user);
        -- [due]
        if p_due is null then
            p_delay := coalesce(p_delay, 0);
        end if;
        -- [end]
        -- [strict]
        p_group := '';
        -- [end]
        for pushed, waited_for in
            {sql push_many within=true}
        loop
            return next pushed;
        end loop;
        perform {queue}_notify(waited_for);
    end;
    $$;
revoke all on function {queue}_push_many from public;
