-- {queue}_push_many: push each element of a JSON array as a payload to the topic, for producers. Returns their ids, in
-- that order.
-- [bytes]
-- The payloads are strings in base64.
-- [end]
-- Locks: none that another transaction waits for. All of them are pushed, or none.
create or replace function {queue}_push_many(
    p_messages json,
    p_headers json default null,
    p_group text default null,
    p_producer text default null,
    p_now timestamptz default null
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
        -- [groups]
        if p_group is null then
            raise exception using errcode = 'TQ001', message = 'The topic has groups, and none is given.',
                hint = 'Give the messages their group.';
        end if;
        -- [end]
        if char_length(p_group) not between 1 and 255 then
            raise exception using errcode = 'TQ001',
                message = 'The group is of ' || char_length(p_group) || ' characters.',
                hint = 'Give 1 to 255 characters.';
        end if;
        p_producer := coalesce(p_producer, session_user);
        for pushed, waited_for in
            {sql topic_push_many within=true}
        loop
            return next pushed;
        end loop;
        perform {queue}_notify(waited_for);
    end;
    $$;
revoke all on function {queue}_push_many from public;
