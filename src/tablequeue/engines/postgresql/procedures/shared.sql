-- What other procedures call, and rights and drops.

-- name: check
-- {queue}_check: refuse options that a push to this queue cannot have. For push, push_many and push_each.
create or replace function {queue}_check(
    p_delay float8, p_due timestamptz, p_priority integer, p_group text, p_key text, p_on_conflict text,
    p_expires float8
) returns void language plpgsql as $$
    declare
        refusal text[] := case
            when p_delay is not null and p_due is not null then
                array['Both delay and due are given.', 'Give one of them.']
            when not p_delay between 0 and {longest} then
                array['delay is ' || p_delay || '.', 'Give seconds, from 0 to 100 years.']
            -- [expires]
            when p_expires <= 0 or p_expires > {longest} then
                array['expires is ' || p_expires || '.', 'Give seconds above 0, to 100 years.']
            -- [not expires]
            when p_expires is not null then
                array['The messages of this queue do not expire.', 'Leave expires out.']
            -- [not priority]
            when p_priority is not null then
                array['The queue does not go by priority.', 'Leave the priority out.']
            -- [groups]
            when p_group is null then
                array['The queue has groups, and none is given.', 'Give the message its group.']
            -- [ungrouped]
            when p_group is not null then
                array['The queue has no groups.', 'Leave the group out.']
            -- [end]
            when char_length(p_group) not between 1 and 255 then
                array['The group is of ' || char_length(p_group) || ' characters.', 'Give 1 to 255 characters.']
            -- [unique_for]
            when p_key is not null then
                array['The keys of this queue stay taken for a time, which no procedure notes.', 'Leave the key out.']
            -- [end]
            when char_length(p_key) not between 1 and 255 then
                array['The key is of ' || char_length(p_key) || ' characters.', 'Give 1 to 255 characters.']
            when p_on_conflict is null or p_on_conflict not in ('raise', 'skip', 'return') then
                array['on_conflict is ' || coalesce(p_on_conflict, 'null') || '.', 'Give raise, skip or return.']
        end;
    begin
        if refusal is not null then
            raise exception using errcode = 'TQ001', message = refusal[1], hint = refusal[2];
        end if;
    end;
    $$;

-- name: characters
-- {queue}_characters: refuse JSON with a lone surrogate as an escape, which is no Unicode text. For what pushes.
-- Backslashes that are escaped themselves are taken out first, then whole pairs.
create or replace function {queue}_characters(p_json json) returns void language plpgsql as $$
    begin
        if cast(p_json as text) ~ E'\\\\u[dD][89a-fA-F]' and regexp_replace(
            replace(cast(p_json as text), E'\\\\', ' '), E'\\\\u[dD][89abAB]..\\\\u[dD][c-fC-F]..', ' ', 'g'
        ) ~ E'\\\\u[dD][89a-fA-F]' then
            raise exception using errcode = 'TQ001',
                message = 'The JSON has a lone surrogate, which is no Unicode text.', hint = 'Replace it.';
        end if;
    end;
    $$;

-- name: list
-- {queue}_list: the payloads of a JSON array of messages: its elements, or with p_each their fields `payload`. For
-- push_many and push_each. Refuses what is no such array.
create or replace function {queue}_list(p_messages json, p_each boolean) returns {array_type}[] language plpgsql as $$
    declare
        payloads {array_type}[];
    begin
        if p_messages is null or json_typeof(p_messages) <> 'array' then
            raise exception using errcode = 'TQ001', message = 'The messages are no JSON array.',
                hint = 'Give an array, as [1, 2].';
        end if;
        perform {queue}_characters(p_messages);
        payloads := array(
            select
                -- [json]
                cast(payload as text)
                -- [text]
                case json_typeof(payload) when 'string' then payload #>> '{}' end
                -- [bytes]
                decode(case json_typeof(payload) when 'string' then payload #>> '{}' end, 'base64')
                -- [end]
            from (
                select case when p_each then value -> 'payload' else value end as payload
                from json_array_elements(p_messages)
            ) as message
        );
        if array_position(payloads, null) is not null then
            raise exception using errcode = 'TQ001',
                message = 'A payload is missing, or of another type than those of the queue.',
                hint = 'Give each message one.';
        end if;
        return payloads;
    -- [not json]
    exception
        when data_exception then
            raise exception using errcode = 'TQ001', message = 'A payload cannot be read: ' || sqlerrm || '.',
                hint = 'Give strings; in a queue of bytes in base64.';
    -- [end]
    end;
    $$;

-- name: options
-- {queue}_options: refuse the fields of messages that are not known, of a wrong type, or that a push to this queue
-- cannot have. For push_each.
create or replace function {queue}_options(p_messages json, p_on_conflict text) returns void language plpgsql as $$
    declare
        refusal text[];
    begin
        select case
            when wanted is null then array[format('A message has no field %L.', name), 'Leave it out.']
            else array[format('The field %L of a message is no %s.', name, wanted), 'Give one, or leave it out.']
        end
        into refusal
        from json_array_elements(p_messages) as element (message)
        cross join json_each(message) as field (name, given)
        left join (
            values
                ('headers', 'object'), ('delay', 'number'), ('due', 'string'), ('priority', 'number'),
                ('group', 'string'), ('key', 'string'), ('expires', 'number')
        ) as known (name, wanted) using (name)
        where name <> 'payload' and (wanted is null or json_typeof(given) not in (wanted, 'null'))
        limit 1;
        if refusal is not null then
            raise exception using errcode = 'TQ001', message = refusal[1], hint = refusal[2];
        end if;
        perform {queue}_check(
            cast(message ->> 'delay' as float8), cast(message ->> 'due' as timestamptz),
            cast(message ->> 'priority' as integer), message ->> 'group', message ->> 'key', p_on_conflict,
            cast(message ->> 'expires' as float8)
        )
        from json_array_elements(p_messages) as element (message);
    exception
        when data_exception then
            raise exception using errcode = 'TQ001',
                message = 'A field of a message cannot be read: ' || sqlerrm || '.',
                hint = 'Give due as 2040-12-31T23:59:59Z, and the priority as a whole number.';
    end;
    $$;

-- name: notify
-- {queue}_notify: notify the consumers that wait at the queue, at the commit. For the other functions.
-- A transaction that has notified cannot be prepared: two-phase commits push by a client of the library, or while the
-- setting tablequeue.notify is off; then consumers look by themselves, up to 10 s later.
create or replace function {queue}_notify(waited_for boolean) returns void language plpgsql as $$
    begin
        if waited_for and current_setting('tablequeue.notify', true) is distinct from 'off' then
            perform pg_notify('{channel}', '');
        end if;
    end;
    $$;

-- name: before_all
-- The functions that are there, before they are replaced. A function that is replaced gets another ctid.
do $$
    begin
        perform set_config('tablequeue.there', coalesce(string_agg(oid || ':' || ctid, ' '), ''), false)
        from pg_proc
        where pronamespace = cast('{quoted_schema}' as regnamespace) and proname in ({names});
    end
    $$;

-- name: after_all
-- A function that was not replaced has other parameters, because an older tablequeue made it: drop it, or calls would
-- be of the older one, or refused. Only the owner may call the others, and roles that were granted them.
do $$
    declare
        made regprocedure;
        outdated boolean;
    begin
        for made, outdated in
            select cast(oid as regprocedure), oid || ':' || ctid = any(there)
            from pg_proc, string_to_array(current_setting('tablequeue.there'), ' ') as there
            where pronamespace = cast('{quoted_schema}' as regnamespace) and proname in ({names})
        loop
            if outdated then
                execute format('drop routine %s', made);
            else
                execute format('revoke all on routine %s from public', made);
            end if;
        end loop;
    end
    $$;

-- name: drop
drop routine if exists {queue}_{verb};

-- name: grant
grant execute on routine {queue}_{verb} to {role};

-- name: grant_schema
grant usage on schema {quoted_schema} to {role};
