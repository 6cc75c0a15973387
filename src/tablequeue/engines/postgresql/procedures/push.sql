-- Procedures that push.

-- name: push
-- {queue}_push: push one message, for producers. Returns its id. If a live message has its key: error TQ002, or with
-- p_on_conflict 'skip' null, or with 'return' the id of that message.
-- Locks: none that another transaction waits for, except pushes of the same key until the transaction ends.
-- A crash before the commit leaves nothing.
create or replace function {queue}_push(
    p_payload {payload_type},
    p_headers json default null,
    p_delay float8 default null,
    p_due timestamptz default null,
    p_priority integer default null,
    p_group text default null,
    p_key text default null,
    p_on_conflict text default 'raise',
    p_producer text default null,
    p_now timestamptz default null,
    p_expires float8 default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    declare
        pushed bigint;
        waited_for boolean;
        there text;
    begin
        perform {queue}_check(p_delay, p_due, p_priority, p_group, p_key, p_on_conflict, p_expires);
        {checked_payload}
        {checked_headers}
        {checked_now}
        p_priority := coalesce(p_priority, 0);
        p_producer := coalesce(p_producer, session_user);
        -- [due]
        if p_due is null then
            p_delay := coalesce(p_delay, 0);
        end if;
        -- [strict]
        p_group := '';
        -- [end]
        loop
            {sql push within=true}
            into pushed, waited_for;
            exit when pushed is not null or p_on_conflict = 'skip';
            if p_on_conflict = 'raise' then
                raise exception using errcode = 'TQ002', detail = p_key,
                    message = 'A live message has the key ' || p_key || ' already.',
                    hint = 'Push with another key, or with p_on_conflict skip or return.';
            end if;
            {sql find_keys keys=array[p_key]}
            into there, pushed;
            exit when pushed is not null; -- else it was finished between the two statements: push again
        end loop;
        perform {queue}_notify(waited_for);
        return pushed;
    end;
    $$;

-- name: push_many
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
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    declare
        pushed bigint;
        waited_for boolean;
        p_payloads {array_type}[] := {queue}_list(p_messages, false);
    begin
        perform {queue}_check(p_delay, p_due, p_priority, p_group, null, 'raise', p_expires);
        {checked_headers}
        {checked_now}
        p_priority := coalesce(p_priority, 0);
        p_producer := coalesce(p_producer, session_user);
        -- [due]
        if p_due is null then
            p_delay := coalesce(p_delay, 0);
        end if;
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

-- name: push_each
-- {queue}_push_each: push a JSON array of messages with options of their own, for producers. Returns the ids in order.
-- A message is an object: payload, and optionally headers, delay, due, priority, group, key,
-- expires.
-- [bytes]
-- The payload is a string in base64.
-- [end]
-- If a message has the key of one already: error TQ002 and none is pushed, or with p_on_conflict 'skip' null for that
-- one, or with 'return' the id of the message that has it.
-- Locks: a message waits for another transaction that is pushing the same key. All of them are pushed, or none.
create or replace function {queue}_push_each(
    p_messages json,
    p_on_conflict text default 'raise',
    p_producer text default null,
    p_now timestamptz default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    declare
        payloads {array_type}[] := {queue}_list(p_messages, true);
        messages json[] := array(select value from json_array_elements(p_messages));
        places integer[] := array(select generate_series(1, cardinality(messages)));
        pushed bigint[] := array_fill(cast(null as bigint), array[cardinality(messages)]);
        taken text[];
        p_payloads {array_type}[];
        p_headers text[];
        p_priorities integer[];
        p_groups text[];
        p_keys text[];
        p_dues timestamptz[];
        p_delays float8[];
        -- [expires]
        p_each_expires float8[];
        -- [end]
        place integer;
        id bigint;
        waited_for boolean;
    begin
        p_producer := coalesce(p_producer, session_user);
        {checked_now}
        perform {queue}_options(p_messages, p_on_conflict);
        while cardinality(places) > 0 loop
            select
                array_agg(payloads[chosen] order by chosen),
                array_agg(message ->> 'headers' order by chosen),
                array_agg(coalesce(cast(message ->> 'priority' as integer), 0) order by chosen),
                -- [strict]
                array_agg(text '' order by chosen),
                -- [not strict]
                array_agg(message ->> 'group' order by chosen),
                -- [end]
                array_agg(message ->> 'key' order by chosen),
                array_agg(cast(message ->> 'due' as timestamptz) order by chosen),
                -- [due]
                array_agg(
                    coalesce(cast(message ->> 'delay' as float8), case when message ->> 'due' is null then 0 end)
                    order by chosen
                )
                -- [not due]
                array_agg(cast(message ->> 'delay' as float8) order by chosen)
                -- [expires]
                , array_agg(cast(message ->> 'expires' as float8) order by chosen)
                -- [end]
            into
                p_payloads, p_headers, p_priorities, p_groups, p_keys, p_dues, p_delays
                -- [expires]
                , p_each_expires
                -- [end]
            from unnest(places) as chosen, lateral (select messages[chosen] as message) as one;
            place := 0;
            for id, waited_for in
                {sql push_each within=true}
            loop
                place := place + 1;
                pushed[places[place]] := id;
            end loop;
            exit when p_on_conflict = 'skip';
            places := array(select chosen from unnest(places) as chosen where pushed[chosen] is null order by chosen);
            exit when cardinality(places) = 0;
            taken := array(select messages[chosen] ->> 'key' from unnest(places) as chosen order by chosen);
            if p_on_conflict = 'raise' then
                raise exception using errcode = 'TQ002', detail = cast(to_json(taken) as text),
                    message = 'Live messages have these keys already: ' || array_to_string(taken[:5], ', ') || '.',
                    hint = 'Push with other keys, or with p_on_conflict skip or return; nothing was pushed.';
            end if;
            for place, id in
                select chosen, there.id
                from unnest(places) as chosen
                join (
                    {sql find_keys keys=taken}
                ) as there on there.dedup_key = messages[chosen] ->> 'key'
            loop
                pushed[place] := id;
            end loop;
            -- Otherwise the message with that key was finished between the two statements: push again.
            places := array(select chosen from unnest(places) as chosen where pushed[chosen] is null order by chosen);
        end loop;
        perform {queue}_notify(waited_for);
        return query select * from unnest(pushed);
    end;
    $$;
