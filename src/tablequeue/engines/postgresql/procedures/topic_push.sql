-- {queue}_push: push one message to the topic, for producers. Returns its id.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
create or replace function {queue}_push(
    p_payload {payload_type},
    p_headers json default null,
    p_group text default null,
    p_producer text default null,
    p_now timestamptz default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    declare
        pushed bigint;
        waited_for boolean;
    begin
        -- [groups]
        if p_group is null then
            raise exception using errcode = 'TQ001', message = 'The topic has groups, and none is given.',
                hint = 'Give the message its group.';
        end if;
        -- [end]
        if char_length(p_group) not between 1 and 255 then
            raise exception using errcode = 'TQ001',
                message = 'The group is of ' || char_length(p_group) || ' characters.',
                hint = 'Give 1 to 255 characters.';
        end if;
        p_producer := coalesce(p_producer, session_user);
        {sql topic_push within=true}
        into pushed, waited_for;
        perform {queue}_notify(waited_for);
        return pushed;
    end;
    $$;
revoke all on function {queue}_push from public;
