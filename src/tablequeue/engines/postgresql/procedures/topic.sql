-- Procedures of topics and subscriptions.

-- name: topic_push
-- {queue}_push: push one message to the topic, for producers. Returns its id.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
create or replace function {queue}_push(
    p_payload {payload_type},
    p_headers json default null,
    p_group text default null,
    p_producer text default null,
    p_now timestamptz default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
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
        {checked_payload}
        {checked_headers}
        {checked_now}
        p_producer := coalesce(p_producer, session_user);
        {sql topic_push within=true}
        into pushed, waited_for;
        perform {queue}_notify(waited_for);
        return pushed;
    end;
    $$;

-- name: move_apart
-- {queue}_move_apart: detach the messages of ranges whose lease has expired. For pop.
-- [groups]
-- The subscription is ordered: move the next messages of the log to its queue, unless another session does it just now.
-- [end]
create or replace function {queue}_move_apart(p_now timestamptz) returns void language plpgsql as $$
    declare
        -- [groups]
        pumped integer;
        -- [ranges]
        expired bigint;
        -- [end]
    begin
        -- [groups]
        {sql range_pump n=1000}
        into pumped;
        perform {queue}_promote(1000, p_now);
        -- [ranges]
        for expired in
            {sql range_expired n=10}
        loop
            {sql range_expire id=expired max_attempts=max_attempts};
        end loop;
        -- [end]
    end;
    $$;

-- name: set_apart
-- {queue}_set_apart: detach the messages of p_ids, which ranges under p_token hold. For fail and release.
create or replace function {queue}_set_apart(
    p_ids bigint[], p_token uuid, p_attempts integer, p_delay float8, p_error text, p_now timestamptz
) returns void language plpgsql as $$
    declare
        message bigint;
        waited_for boolean;
    begin
        for message, waited_for in
            {sql range_detach max_attempts=max_attempts within=true}
        loop
            null;
        end loop;
        {sql range_mark};
        perform {queue}_notify(waited_for);
    end;
    $$;

-- name: topic_push_many
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
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    declare
        pushed bigint;
        waited_for boolean;
        p_payloads {array_type}[] := {queue}_list(p_messages, false);
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
        {checked_headers}
        {checked_now}
        p_producer := coalesce(p_producer, session_user);
        for pushed, waited_for in
            {sql topic_push_many within=true}
        loop
            return next pushed;
        end loop;
        perform {queue}_notify(waited_for);
    end;
    $$;
