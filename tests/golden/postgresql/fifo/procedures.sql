-- The functions that are there, before they are replaced. A function that is replaced gets another ctid.
do $$
    begin
        perform set_config('tablequeue.there', coalesce(string_agg(oid || ':' || ctid, ' '), ''), false)
        from pg_proc
        where pronamespace = cast('public' as regnamespace) and proname in ('tq_emails_check', 'tq_emails_characters', 'tq_emails_claim', 'tq_emails_list', 'tq_emails_notify', 'tq_emails_options', 'tq_emails_remove', 'tq_emails_sweep', 'tq_emails_push', 'tq_emails_push_many', 'tq_emails_push_each', 'tq_emails_cancel', 'tq_emails_pop', 'tq_emails_take', 'tq_emails_look', 'tq_emails_wait', 'tq_emails_complete', 'tq_emails_fail', 'tq_emails_release', 'tq_emails_extend', 'tq_emails_stats', 'tq_emails_peek', 'tq_emails_history');
    end
    $$;

-- public.tq_emails_check: refuse options that a push to this queue cannot have. For push, push_many and push_each.
create or replace function public.tq_emails_check(
    p_delay float8, p_due timestamptz, p_priority integer, p_group text, p_key text, p_on_conflict text,
    p_expires float8
) returns void language plpgsql as $$
    declare
        refusal text[] := case
            when p_delay is not null and p_due is not null then
                array['Both delay and due are given.', 'Give one of them.']
            when not p_delay between 0 and 3200000000 then
                array['delay is ' || p_delay || '.', 'Give seconds, from 0 to 100 years.']
            when p_expires is not null then
                array['The messages of this queue do not expire.', 'Leave expires out.']
            when p_priority is not null then
                array['The queue does not go by priority.', 'Leave the priority out.']
            when p_group is not null then
                array['The queue has no groups.', 'Leave the group out.']
            when char_length(p_group) not between 1 and 255 then
                array['The group is of ' || char_length(p_group) || ' characters.', 'Give 1 to 255 characters.']
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

-- public.tq_emails_characters: refuse JSON with a lone surrogate as an escape, which is no Unicode text. For what pushes.
-- Backslashes that are escaped themselves are taken out first, then whole pairs.
create or replace function public.tq_emails_characters(p_json json) returns void language plpgsql as $$
    begin
        if cast(p_json as text) ~ E'\\\\u[dD][89a-fA-F]' and regexp_replace(
            replace(cast(p_json as text), E'\\\\', ' '), E'\\\\u[dD][89abAB]..\\\\u[dD][c-fC-F]..', ' ', 'g'
        ) ~ E'\\\\u[dD][89a-fA-F]' then
            raise exception using errcode = 'TQ001',
                message = 'The JSON has a lone surrogate, which is no Unicode text.', hint = 'Replace it.';
        end if;
    end;
    $$;

-- public.tq_emails_claim: the rows of pop, in any order. A session sweeps once a second before it claims. If too few messages
-- were ready, it sweeps after that too, and claims again.
-- In a caller's transaction, only the caller can claim what it sweeps until the commit. A function cannot know whether
-- it runs in one. It assumes so if the transaction has written anything or is older than a second. Then it sweeps
-- no more messages than it is to claim.
-- It has no low-water mark, which only a process can keep: while an old snapshot is open, a claim walks the index
-- entries of all messages that were ready since.
create or replace function public.tq_emails_claim(
    p_n integer, p_consumer text, p_lease float8, p_token uuid, p_now timestamptz
) returns table (
    id bigint, payload json, headers json, attempts integer, pushed_at timestamptz, popped_at timestamptz,
    lease_until timestamptz, priority integer, group_key text, dedup_key text, due_at timestamptz, errors jsonb
) language plpgsql as $$
    #variable_conflict use_column
    declare
        claimed integer;
        within boolean := txid_current_if_assigned() is not null or now() < statement_timestamp() - interval '1 s';
        most integer := case when within then p_n else 1000 end;
        swept boolean := public.tq_emails_sweep(1, most, p_now) is not null;
    begin
        for turn in 1..2 loop
            return query
                update public.tq_emails
                set state = 'in_progress',
                    attempts = attempts + 1,
                    token = cast(p_token as uuid),
                    consumer = cast(p_consumer as text),
                    popped_at = coalesce(cast(p_now as timestamptz), statement_timestamp()),
                    first_popped_at = coalesce(first_popped_at, coalesce(cast(p_now as timestamptz), statement_timestamp())),
                    lease_until = coalesce(cast(p_now as timestamptz), statement_timestamp()) + cast(p_lease as float8) * interval '1 second'
                where ctid = any(array(
                    select ctid from public.tq_emails
                    where state = 'ready' and id > 0 and not exists (select 1 from public.tq__paused where name = 'tq_emails' and until > coalesce(cast(p_now as timestamptz), statement_timestamp()))
                    order by id
                    limit p_n
                    for update skip locked
                ))
                returning
                    id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key,
                    due_at, errors;
            get diagnostics claimed = row_count;
            p_n := p_n - claimed;
            exit when p_n <= 0 or swept;
            swept := true;
            exit when public.tq_emails_sweep(0, most, p_now) = 0;
        end loop;
    end;
    $$;

-- public.tq_emails_list: the payloads of a JSON array of messages: its elements, or with p_each their fields `payload`. For
-- push_many and push_each. Refuses what is no such array.
create or replace function public.tq_emails_list(p_messages json, p_each boolean) returns text[] language plpgsql as $$
    declare
        payloads text[];
    begin
        if p_messages is null or json_typeof(p_messages) <> 'array' then
            raise exception using errcode = 'TQ001', message = 'The messages are no JSON array.',
                hint = 'Give an array, as [1, 2].';
        end if;
        perform public.tq_emails_characters(p_messages);
        payloads := array(
            select
                cast(payload as text)
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
    end;
    $$;

-- public.tq_emails_notify: notify the consumers that wait at the queue, at the commit. For the other functions.
-- A transaction that has notified cannot be prepared: two-phase commits push by a client of the library, or while the
-- setting tablequeue.notify is off; then consumers look by themselves, up to 10 s later.
create or replace function public.tq_emails_notify(waited_for boolean) returns void language plpgsql as $$
    begin
        if waited_for and current_setting('tablequeue.notify', true) is distinct from 'off' then
            perform pg_notify('tq_emails', '');
        end if;
    end;
    $$;

-- public.tq_emails_options: refuse the fields of messages that are not known, of a wrong type, or that a push to this queue
-- cannot have. For push_each.
create or replace function public.tq_emails_options(p_messages json, p_on_conflict text) returns void language plpgsql as $$
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
        perform public.tq_emails_check(
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

-- public.tq_emails_remove: the rows of take, in any order. It sweeps when public.tq_emails_claim does, and no more than it is to remove.
create or replace function public.tq_emails_remove(
    p_n integer, p_consumer text, p_token uuid, p_now timestamptz
) returns table (
    id bigint, payload json, headers json, attempts integer, pushed_at timestamptz, popped_at timestamptz,
    lease_until timestamptz, priority integer, group_key text, dedup_key text, due_at timestamptz, errors jsonb
) language plpgsql as $$
    #variable_conflict use_column
    declare
        removed integer;
        swept boolean := public.tq_emails_sweep(1, p_n, p_now) is not null;
    begin
        for turn in 1..2 loop
            return query
                with taken as (
                    delete from public.tq_emails
                    where id = any(array(
                        select id from public.tq_emails
                        where state = 'ready' and id > 0 and not exists (select 1 from public.tq__paused where name = 'tq_emails' and until > coalesce(cast(p_now as timestamptz), statement_timestamp()))
                        order by id
                        limit p_n
                        for update skip locked
                    ))
                    returning *
                )
                insert into public.tq_emails_history (
                    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
                    producer, consumer, headers, errors, payload
                )
                select
                    id, attempts + 1, priority, cast(p_token as uuid), pushed_at, due_at, coalesce(first_popped_at, coalesce(cast(p_now as timestamptz), statement_timestamp())), coalesce(cast(p_now as timestamptz), statement_timestamp()),
                    case when cast(p_token as uuid) is null then coalesce(cast(p_now as timestamptz), statement_timestamp()) end, group_key, dedup_key, producer, cast(p_consumer as text),
                    headers, errors, payload
                from taken
                returning
                    id, payload, headers, attempts, pushed_at, popped_at, cast(null as timestamptz), priority, group_key,
                    dedup_key, due_at, errors;
            get diagnostics removed = row_count;
            p_n := p_n - removed;
            exit when p_n <= 0 or swept;
            swept := true;
            exit when public.tq_emails_sweep(0, p_n, p_now) = 0;
        end loop;
    end;
    $$;

-- public.tq_emails_sweep: make messages ready that are due or abandoned. Returns their number, or null if the last sweep of this
-- session was less than p_every seconds ago. For pop and take.
-- No other consumer can claim these messages until the transaction commits. So they are at most p_n, and at most 1,000.
-- The session remembers the time of its last sweep in the setting tablequeue.tq_emails.
create or replace function public.tq_emails_sweep(p_every float8, p_n integer, p_now timestamptz)
returns bigint language plpgsql as $$
    declare
        most integer := least(p_n, 1000);
        moved bigint := 0;
        message bigint;
        clock float8 := extract(epoch from clock_timestamp());
        last_sweep float8 := nullif(current_setting('tablequeue.tq_emails', true), '');
    begin
        if p_now is null and clock < last_sweep + p_every then
            return null;
        end if;
        perform set_config('tablequeue.tq_emails', cast(clock as text), false);
        for message in
            with due as (
                select id from public.tq_emails
                where state = 'scheduled' and due_at <= coalesce(cast(p_now as timestamptz), statement_timestamp()) and due_at > coalesce(coalesce(cast(p_now as timestamptz), statement_timestamp()) - cast(null as float8) * interval '1 second', '-infinity')
                order by due_at
                limit most
                for update skip locked
            ), expired as (
                select id, cancelled_at from public.tq_emails
                where state = 'in_progress' and lease_until <= coalesce(cast(p_now as timestamptz), statement_timestamp()) and lease_until > coalesce(coalesce(cast(p_now as timestamptz), statement_timestamp()) - cast(null as float8) * interval '1 second', '-infinity')
                order by lease_until
                limit most
                for update skip locked
            ), moved as (
                update public.tq_emails
                set state = case
                        when state = 'in_progress' and attempts >= 5 then 'dead'
                        else 'ready'
                    end,
                    errors = case
                        when state = 'in_progress' then case
                            when jsonb_array_length(errors) >= 10
                                then jsonb_path_query_array(errors, '$[0 to 2]')
                                    || jsonb_path_query_array(errors, '$[last - 5 to last]')
                            else coalesce(errors, '[]')
                        end || jsonb_build_array(jsonb_build_object(
                            'number', coalesce(cast(errors -> -1 ->> 'number' as integer), jsonb_array_length(errors), 0) + 1,
                            'attempt', attempts, 'at', coalesce(cast(p_now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast('lease expired' as text)
                        ))
                        else errors
                    end,
                    token = null,
                    lease_until = null
                where id = any(array(select id from due union all select id from expired where cancelled_at is null))
                returning id
            ), cancelled as (
                delete from public.tq_emails
                where id = any(array(select id from expired where cancelled_at is not null))
                returning *, case
                    when jsonb_array_length(errors) >= 10
                        then jsonb_path_query_array(errors, '$[0 to 2]')
                            || jsonb_path_query_array(errors, '$[last - 5 to last]')
                    else coalesce(errors, '[]')
                end || jsonb_build_array(jsonb_build_object(
                    'number', coalesce(cast(errors -> -1 ->> 'number' as integer), jsonb_array_length(errors), 0) + 1,
                    'attempt', attempts, 'at', coalesce(cast(p_now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast('lease expired' as text)
                )) as all_errors
            ), kept as (
                insert into public.tq_emails_history (
                    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
                    producer, consumer, headers, errors, payload,
                    outcome
                )
                select
                    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as timestamptz), statement_timestamp()), group_key, dedup_key, producer,
                    consumer, headers, all_errors, payload,
                    'cancelled'
                from cancelled
            )
            select id from moved
            union all
            select id from cancelled
        loop
            moved := moved + 1;
        end loop;
        delete from public.tq_emails_history
        where id = any(array(
            select id
            from (
                select id from (
                    select id from public.tq_emails_history
                    where finished_at <= coalesce(cast(p_now as timestamptz), statement_timestamp()) - cast(2592000.0 as float8) * interval '1 second'
                    order by finished_at
                    limit 1000
                    for update skip locked
                ) as finished
                union all
                select id from (
                    select id from public.tq_emails_history
                    where finished_at is null and popped_at <= coalesce(cast(p_now as timestamptz), statement_timestamp()) - cast(2592000.0 as float8) * interval '1 second'
                    order by finished_at
                    limit 1000
                    for update skip locked
                ) as lost
            ) as old
            limit 1000
        ));
        return moved;
    end;
    $$;

-- public.tq_emails_push: push one message, for producers. Returns its id. If a live message has its key: error TQ002, or with
-- p_on_conflict 'skip' null, or with 'return' the id of that message.
-- Locks: none that another transaction waits for, except pushes of the same key until the transaction ends.
-- A crash before the commit leaves nothing.
create or replace function public.tq_emails_push(
    p_payload json,
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
) returns bigint language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    declare
        pushed bigint;
        waited_for boolean;
        there text;
    begin
        perform public.tq_emails_check(p_delay, p_due, p_priority, p_group, p_key, p_on_conflict, p_expires);
        if p_payload is null then
            raise exception using errcode = 'TQ001', message = 'The payload is null.', hint = 'Give the message one.';
        end if;
        perform public.tq_emails_characters(p_payload);
        if json_typeof(p_headers) <> 'object' then
            raise exception using errcode = 'TQ001', message = 'The headers are no JSON object.',
                hint = 'Give an object, or leave them out.';
        end if;
        perform public.tq_emails_characters(p_headers);
        if not isfinite(p_now) then
            raise exception using errcode = 'TQ001', message = 'now is ' || p_now || '.',
                hint = 'Give a time, or leave it out.';
        end if;
        p_priority := coalesce(p_priority, 0);
        p_producer := coalesce(p_producer, session_user);
        loop
            with pushed as (
                insert into public.tq_emails (
                    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state
                )
                values (
                    cast(p_payload as json), cast(p_headers as json), cast(p_producer as text),
                    cast(p_priority as integer), cast(p_group as text), cast(p_key as text), coalesce(cast(p_now as timestamptz), statement_timestamp()),
                    coalesce(cast(p_due as timestamptz), coalesce(cast(p_now as timestamptz), statement_timestamp()) + cast(p_delay as float8) * interval '1 second'),
                    case
                        when coalesce(cast(p_due as timestamptz), coalesce(cast(p_now as timestamptz), statement_timestamp()) + cast(p_delay as float8) * interval '1 second') > coalesce(cast(p_now as timestamptz), statement_timestamp())
                            then 'scheduled'
                        else 'ready'
                    end
                )
                on conflict (dedup_key) where dedup_key is not null do nothing
                returning id
            )
            select id, (select case
                when true and pg_advisory_xact_lock_shared(hashtextextended('tq_emails', 8318836323)) is null then null
                when pg_try_advisory_lock(hashtextextended('tq_emails', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_emails', 8318836321))
                when true then true
                when not pg_try_advisory_xact_lock(
                    hashtextextended('tq_emails', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
                ) then false
                else pg_notify('tq_emails', '') is null end) as waited_for from pushed
            into pushed, waited_for;
            exit when pushed is not null or p_on_conflict = 'skip';
            if p_on_conflict = 'raise' then
                raise exception using errcode = 'TQ002', detail = p_key,
                    message = 'A live message has the key ' || p_key || ' already.',
                    hint = 'Push with another key, or with p_on_conflict skip or return.';
            end if;
            select dedup_key, id from public.tq_emails where dedup_key = any(cast(array[p_key] as text[]))
            into there, pushed;
            exit when pushed is not null; -- else it was finished between the two statements: push again
        end loop;
        perform public.tq_emails_notify(waited_for);
        return pushed;
    end;
    $$;

-- public.tq_emails_push_many: push each element of a JSON array as a payload, for producers. Returns their ids, in that order.
-- Locks: none that another transaction waits for. All of them are pushed, or none.
create or replace function public.tq_emails_push_many(
    p_messages json,
    p_headers json default null,
    p_delay float8 default null,
    p_due timestamptz default null,
    p_priority integer default null,
    p_group text default null,
    p_producer text default null,
    p_now timestamptz default null,
    p_expires float8 default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    declare
        pushed bigint;
        waited_for boolean;
        p_payloads text[] := public.tq_emails_list(p_messages, false);
    begin
        perform public.tq_emails_check(p_delay, p_due, p_priority, p_group, null, 'raise', p_expires);
        if json_typeof(p_headers) <> 'object' then
            raise exception using errcode = 'TQ001', message = 'The headers are no JSON object.',
                hint = 'Give an object, or leave them out.';
        end if;
        perform public.tq_emails_characters(p_headers);
        if not isfinite(p_now) then
            raise exception using errcode = 'TQ001', message = 'now is ' || p_now || '.',
                hint = 'Give a time, or leave it out.';
        end if;
        p_priority := coalesce(p_priority, 0);
        p_producer := coalesce(p_producer, session_user);
        for pushed, waited_for in
            with pushed as (
                insert into public.tq_emails (payload, headers, producer, priority, group_key, pushed_at, due_at, state)
                select
                    cast(payload as json), cast(p_headers as json), cast(p_producer as text),
                    cast(p_priority as integer), cast(p_group as text), coalesce(cast(p_now as timestamptz), statement_timestamp()),
                    coalesce(cast(p_due as timestamptz), coalesce(cast(p_now as timestamptz), statement_timestamp()) + cast(p_delay as float8) * interval '1 second'),
                    case
                        when coalesce(cast(p_due as timestamptz), coalesce(cast(p_now as timestamptz), statement_timestamp()) + cast(p_delay as float8) * interval '1 second') > coalesce(cast(p_now as timestamptz), statement_timestamp())
                            then 'scheduled'
                        else 'ready'
                    end
                from unnest(cast(p_payloads as text[])) with ordinality as batch (payload, place)
                order by place
                returning id
            )
            select id, (select case
                when true and pg_advisory_xact_lock_shared(hashtextextended('tq_emails', 8318836323)) is null then null
                when pg_try_advisory_lock(hashtextextended('tq_emails', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_emails', 8318836321))
                when true then true
                when not pg_try_advisory_xact_lock(
                    hashtextextended('tq_emails', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
                ) then false
                else pg_notify('tq_emails', '') is null end) as waited_for from pushed
        loop
            return next pushed;
        end loop;
        perform public.tq_emails_notify(waited_for);
    end;
    $$;

-- public.tq_emails_push_each: push a JSON array of messages with options of their own, for producers. Returns the ids in order.
-- A message is an object: payload, and optionally headers, delay, due, priority, group, key,
-- expires.
-- If a message has the key of one already: error TQ002 and none is pushed, or with p_on_conflict 'skip' null for that
-- one, or with 'return' the id of the message that has it.
-- Locks: a message waits for another transaction that is pushing the same key. All of them are pushed, or none.
create or replace function public.tq_emails_push_each(
    p_messages json,
    p_on_conflict text default 'raise',
    p_producer text default null,
    p_now timestamptz default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    declare
        payloads text[] := public.tq_emails_list(p_messages, true);
        messages json[] := array(select value from json_array_elements(p_messages));
        places integer[] := array(select generate_series(1, cardinality(messages)));
        pushed bigint[] := array_fill(cast(null as bigint), array[cardinality(messages)]);
        taken text[];
        p_payloads text[];
        p_headers text[];
        p_priorities integer[];
        p_groups text[];
        p_keys text[];
        p_dues timestamptz[];
        p_delays float8[];
        place integer;
        id bigint;
        waited_for boolean;
    begin
        p_producer := coalesce(p_producer, session_user);
        if not isfinite(p_now) then
            raise exception using errcode = 'TQ001', message = 'now is ' || p_now || '.',
                hint = 'Give a time, or leave it out.';
        end if;
        perform public.tq_emails_options(p_messages, p_on_conflict);
        while cardinality(places) > 0 loop
            select
                array_agg(payloads[chosen] order by chosen),
                array_agg(message ->> 'headers' order by chosen),
                array_agg(coalesce(cast(message ->> 'priority' as integer), 0) order by chosen),
                array_agg(message ->> 'group' order by chosen),
                array_agg(message ->> 'key' order by chosen),
                array_agg(cast(message ->> 'due' as timestamptz) order by chosen),
                array_agg(cast(message ->> 'delay' as float8) order by chosen)
            into
                p_payloads, p_headers, p_priorities, p_groups, p_keys, p_dues, p_delays
            from unnest(places) as chosen, lateral (select messages[chosen] as message) as one;
            place := 0;
            for id, waited_for in
                with batch as materialized (
                    select nextval((select cast(pg_get_serial_sequence('public.tq_emails', 'id') as regclass))) as id, entry.*
                    from (
                        select * from unnest(
                            cast(p_payloads as text[]), cast(p_headers as text[]), cast(p_priorities as integer[]),
                            cast(p_groups as text[]), cast(p_keys as text[]), cast(p_dues as timestamptz[]), cast(p_delays as float8[])
                        ) with ordinality as entry (payload, headers, priority, group_key, dedup_key, due, delay, place)
                        order by place
                    ) as entry
                ), pushed as (
                    insert into public.tq_emails (
                        id, payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state
                    )
                    select
                        id, cast(payload as json), cast(headers as json), cast(p_producer as text),
                        priority, group_key, dedup_key, coalesce(cast(p_now as timestamptz), statement_timestamp()), coalesce(due, coalesce(cast(p_now as timestamptz), statement_timestamp()) + delay * interval '1 second'),
                        case
                            when coalesce(due, coalesce(cast(p_now as timestamptz), statement_timestamp()) + delay * interval '1 second') > coalesce(cast(p_now as timestamptz), statement_timestamp()) then 'scheduled'
                            else 'ready'
                        end
                    from batch
                    order by place
                    on conflict (dedup_key) where dedup_key is not null do nothing
                    returning id
                )
                select pushed.id, (select case
                    when true and pg_advisory_xact_lock_shared(hashtextextended('tq_emails', 8318836323)) is null then null
                    when pg_try_advisory_lock(hashtextextended('tq_emails', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_emails', 8318836321))
                    when true then true
                    when not pg_try_advisory_xact_lock(
                        hashtextextended('tq_emails', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
                    ) then false
                    else pg_notify('tq_emails', '') is null end) as waited_for from batch left join pushed on pushed.id = batch.id order by batch.place
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
                    select dedup_key, id from public.tq_emails where dedup_key = any(cast(taken as text[]))
                ) as there on there.dedup_key = messages[chosen] ->> 'key'
            loop
                pushed[place] := id;
            end loop;
            -- Otherwise the message with that key was finished between the two statements: push again.
            places := array(select chosen from unnest(places) as chosen where pushed[chosen] is null order by chosen);
        end loop;
        perform public.tq_emails_notify(waited_for);
        return query select * from unnest(pushed);
    end;
    $$;

-- public.tq_emails_cancel: cancel the messages of p_ids, for producers; returns those that there are, and whether each was told.
-- A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop: if it fails, is
-- released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
create or replace function public.tq_emails_cancel(
    p_ids bigint[],
    p_now timestamptz default null
) returns table (id bigint, told boolean)
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    begin
        return query
            with message as materialized (
                select id, state from public.tq_emails where id = any(cast(p_ids as bigint[])) order by id for update
            ), told as (
                update public.tq_emails
                set cancelled_at = coalesce(cancelled_at, coalesce(cast(p_now as timestamptz), statement_timestamp()))
                where id = any(array(select id from message where state = 'in_progress'))
                returning id
            ), gone as (
                delete from public.tq_emails
                where id = any(array(select id from message where state <> 'in_progress'))
                returning *
            ), kept as (
                insert into public.tq_emails_history (
                    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
                    producer, consumer, headers, errors, payload,
                    outcome
                )
                select
                    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as timestamptz), statement_timestamp()), group_key, dedup_key, producer,
                    consumer, headers, errors, payload,
                    'cancelled'
                from gone
            )
            select id, true as told from told
            union all
            select id, false from gone;
    end;
    $$;

-- public.tq_emails_pop: claim up to p_n ready messages, for consumers; in the order of the queue, each with the token that
-- finishes it.
-- The lease is of p_lease seconds (else 60.0); a consumer that does not finish a message by then has lost it.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
create or replace function public.tq_emails_pop(
    p_n integer default 1,
    p_consumer text default null,
    p_lease float8 default null,
    p_now timestamptz default null
) returns table (
    id bigint, payload json, headers json, attempts integer, pushed_at timestamptz, popped_at timestamptz,
    lease_until timestamptz, priority integer, group_key text, dedup_key text, due_at timestamptz, errors jsonb,
    token uuid
) language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    declare
        p_token uuid := gen_random_uuid();
    begin
        if p_n is null or p_n < 1 then
            raise exception using errcode = 'TQ001', message = 'n is ' || coalesce(cast(p_n as text), 'null') || '.',
                hint = 'Give a whole number from 1 on.';
        end if;
        p_lease := coalesce(p_lease, 60.0);
        if p_lease is null or not p_lease between 0 and 3200000000 then
            raise exception using errcode = 'TQ001',
                message = 'lease is ' || coalesce(cast(p_lease as text), 'null') || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        p_consumer := coalesce(p_consumer, session_user);
        return query
            select message.*, p_token
            from public.tq_emails_claim(p_n, p_consumer, p_lease, p_token, p_now) as message
            order by id;
    end;
    $$;

-- public.tq_emails_take: remove up to p_n ready messages, for consumers; in the order of the queue. They are finished when the
-- transaction commits.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
create or replace function public.tq_emails_take(
    p_n integer default 1,
    p_consumer text default null,
    p_now timestamptz default null
) returns table (
    id bigint, payload json, headers json, attempts integer, pushed_at timestamptz, popped_at timestamptz,
    lease_until timestamptz, priority integer, group_key text, dedup_key text, due_at timestamptz, errors jsonb
) language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    begin
        if p_n is null or p_n < 1 then
            raise exception using errcode = 'TQ001', message = 'n is ' || coalesce(cast(p_n as text), 'null') || '.',
                hint = 'Give a whole number from 1 on.';
        end if;
        return query
            select message.*
            from public.tq_emails_remove(p_n, coalesce(p_consumer, session_user), null, p_now) as message
            order by id;
    end;
    $$;

-- public.tq_emails_look: whether a pop may find a message now, for public.tq_emails_wait. It sweeps as pop does: once a second for each
-- session. In a call that waits, the time of the statement is that of its start, so it gives the time of the clock.
-- Index: tq_emails__ready. Locks: the messages that it sweeps, until the transaction ends.
create or replace function public.tq_emails_look() returns boolean
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    declare
        p_now timestamptz := clock_timestamp();
        p_low_water bigint := 0;
        last_sweep float8 := nullif(current_setting('tablequeue.tq_emails', true), '');
    begin
        if last_sweep is null or extract(epoch from p_now) >= last_sweep + 1 then
            perform public.tq_emails_sweep(0, 1000, p_now);
        end if;
        return exists (select from public.tq_emails where state = 'ready' and id > p_low_water and not exists (select 1 from public.tq__paused where name = 'tq_emails' and until > coalesce(cast(p_now as timestamptz), statement_timestamp())));
    end;
    $$;

-- public.tq_emails_wait: return when a pop may find a message, or after p_seconds. For a consumer with an empty queue: call it
-- in autocommit, and then pop. It begins with a pause, so a queue that is at a limit costs no more than an empty one.
-- A procedure, because a function cannot commit: each look is a transaction, and each pause, of a quarter of a second,
-- is one too, without locks. In a transaction of the caller's the first commit is refused (2D000).
-- It runs with the rights of its caller, because no other procedure may commit.
create or replace procedure public.tq_emails_wait(p_seconds float8 default 20) language plpgsql as $$
    declare
        ends timestamptz;
        ready boolean := false;
    begin
        if p_seconds is null or not p_seconds between 0 and 3200000000 then
            raise exception using errcode = 'TQ001',
                message = 'seconds is ' || coalesce(cast(p_seconds as text), 'null') || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        ends := clock_timestamp() + p_seconds * interval '1 second';
        while not ready and clock_timestamp() < ends loop
            commit;
            perform pg_sleep(least(0.25, greatest(0, extract(epoch from ends - clock_timestamp()))));
            commit;
            ready := public.tq_emails_look();
        end loop;
    end;
    $$;

-- public.tq_emails_complete: complete the messages of p_ids that p_token holds, for consumers; returns their ids.
-- Error TQ003 if it holds none of them: an error undoes the statement, so it cannot be raised for some of them.
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
create or replace function public.tq_emails_complete(
    p_ids bigint[],
    p_token uuid,
    p_now timestamptz default null,
    p_result json default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    begin
        if p_result is not null then
            raise exception using errcode = 'TQ001', message = 'This queue keeps no results.',
                hint = 'Leave the result out, or use a queue with results.';
        end if;
        return query
            with finished as (
                delete from public.tq_emails
                where id = any(cast(p_ids as bigint[])) and token = cast(p_token as uuid)
                returning *
            )
            insert into public.tq_emails_history (
                id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
                consumer, headers, errors, payload
            )
            select
                id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as timestamptz), statement_timestamp()), group_key, dedup_key, producer,
                consumer, headers, errors, payload
            from finished
            returning id;
        if not found and cardinality(p_ids) > 0 then
            raise exception using errcode = 'TQ003', message = 'The lease on ' || array_to_string(p_ids[:5], ', ')
                || ' is lost, so nothing was completed.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
    end;
    $$;

-- public.tq_emails_fail: fail the attempt on message p_id, held under p_token, for consumers.
-- It is tried again after p_retry_in seconds, or else by the backoff of the queue; after 5 attempts it is
-- a dead letter. Returns its new state: ready, scheduled or dead; or cancelled, if it was told to stop.
-- Error TQ003 if the lease is lost. Locks: the message, until the transaction ends. A crash before the commit leaves
-- the message in progress.
create or replace function public.tq_emails_fail(
    p_id bigint,
    p_token uuid,
    p_error text default '',
    p_retry_in float8 default null,
    p_now timestamptz default null
) returns text language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    declare
        p_delay float8 := p_retry_in;
        failed bigint;
        new_state text;
        waited_for boolean;
        ended bigint;
    begin
        if not p_delay between 0 and 3200000000 then
            raise exception using errcode = 'TQ001', message = 'retry_in is ' || p_delay || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        p_error := coalesce(p_error, '');
        if char_length(p_error) > 8000 then
            p_error := concat(
                left(p_error, 3950), chr(10), '[... ', char_length(p_error) - 2 * 3950,
                ' characters left out ...]', chr(10), right(p_error, 3950)
            );
        end if;
        if p_delay is null then
            select least(
                cast(3600.0 as float8),
                cast(1.0 as float8) * power(cast(2.0 as float8), least(greatest(attempts - 1, 0), 12))
            ) * (1 - cast(0.1 as float8) * random())
            into p_delay
            from public.tq_emails where id = p_id and token = p_token;
        end if;
        with failed as (
            update public.tq_emails as message
            set state = case
                    when attempts >= 5 then 'dead'
                    when given.delay > 0 then 'scheduled'
                    else 'ready'
                end,
                due_at = case
                    when attempts >= 5 then due_at
                    else coalesce(cast(p_now as timestamptz), statement_timestamp()) + given.delay * interval '1 second'
                end,
                errors = case
                    when jsonb_array_length(errors) >= 10
                        then jsonb_path_query_array(errors, '$[0 to 2]')
                            || jsonb_path_query_array(errors, '$[last - 5 to last]')
                    else coalesce(errors, '[]')
                end || jsonb_build_array(jsonb_build_object(
                    'number', coalesce(cast(errors -> -1 ->> 'number' as integer), jsonb_array_length(errors), 0) + 1,
                    'attempt', attempts, 'at', coalesce(cast(p_now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast(p_error as text)
                )),
                token = null,
                lease_until = null
            from unnest(cast(array[p_id] as bigint[]), cast(array[p_delay] as float8[])) as given (id, delay)
            where message.id = given.id and token = cast(p_token as uuid) and cancelled_at is null
            returning message.id, state
        )
        select id, state, case when state <> 'dead' then (select case
            when true and pg_advisory_xact_lock_shared(hashtextextended('tq_emails', 8318836323)) is null then null
            when pg_try_advisory_lock(hashtextextended('tq_emails', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_emails', 8318836321))
            when true then true
            when not pg_try_advisory_xact_lock(
                hashtextextended('tq_emails', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
            ) then false
            else pg_notify('tq_emails', '') is null end) else false end as waited_for from failed
        into failed, new_state, waited_for;
        if new_state is null then
            -- Told to stop: it ends.
            with gone as (
                delete from public.tq_emails
                where id = any(cast(array[p_id] as bigint[])) and token = cast(p_token as uuid) and cancelled_at is not null
                returning *, case
                    when cast(p_error as text) is null then errors
                    else case
                        when jsonb_array_length(errors) >= 10
                            then jsonb_path_query_array(errors, '$[0 to 2]')
                                || jsonb_path_query_array(errors, '$[last - 5 to last]')
                        else coalesce(errors, '[]')
                    end || jsonb_build_array(jsonb_build_object(
                        'number', coalesce(cast(errors -> -1 ->> 'number' as integer), jsonb_array_length(errors), 0) + 1,
                        'attempt', attempts, 'at', coalesce(cast(p_now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast(p_error as text)
                    ))
                end as all_errors
            )
            insert into public.tq_emails_history (
                id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
                consumer, headers, errors, payload,
                outcome
            )
            select
                id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as timestamptz), statement_timestamp()), group_key, dedup_key, producer,
                consumer, headers, all_errors, payload,
                'cancelled'
            from gone
            returning id
            into ended;
            new_state := case when ended is not null then 'cancelled' end;
        end if;
        if new_state is null then
            raise exception using errcode = 'TQ003',
                message = 'The lease on ' || p_id || ' is lost, so it was not failed.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
        perform public.tq_emails_notify(waited_for);
        return new_state;
    end;
    $$;

-- public.tq_emails_release: release the messages of p_ids that p_token holds, unworked, for consumers; returns their ids. They
-- are ready after p_delay seconds, and the attempt is not counted; those that were told to stop end.
-- Error TQ003 if it holds none of them.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
create or replace function public.tq_emails_release(
    p_ids bigint[],
    p_token uuid,
    p_delay float8 default 0,
    p_now timestamptz default null
) returns setof bigint language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    declare
        released bigint;
        ended bigint;
        was_in_run boolean;
        waited_for boolean;
    begin
        if p_delay is null or not p_delay between 0 and 3200000000 then
            raise exception using errcode = 'TQ001',
                message = 'delay is ' || coalesce(cast(p_delay as text), 'null') || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        for released, was_in_run, waited_for in
            with released as (
                update public.tq_emails
                set state = case when cast(p_delay as float8) > 0 then 'scheduled' else 'ready' end,
                    due_at = case
                        when cast(p_delay as float8) > 0 then coalesce(cast(p_now as timestamptz), statement_timestamp()) + cast(p_delay as float8) * interval '1 second'
                        else due_at
                    end,
                    attempts = attempts - 1,
                    token = null,
                    lease_until = null
                where id = any(cast(p_ids as bigint[])) and token = cast(p_token as uuid) and cancelled_at is null
                returning id, state = 'blocked' as from_run
            )
            select id, from_run, (select case
                when true and pg_advisory_xact_lock_shared(hashtextextended('tq_emails', 8318836323)) is null then null
                when pg_try_advisory_lock(hashtextextended('tq_emails', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_emails', 8318836321))
                when true then true
                when not pg_try_advisory_xact_lock(
                    hashtextextended('tq_emails', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)
                ) then false
                else pg_notify('tq_emails', '') is null end) as waited_for from released
        loop
            return next released;
        end loop;
        -- Told to stop: they end.
        for ended in
            with gone as (
                delete from public.tq_emails
                where id = any(cast(p_ids as bigint[])) and token = cast(p_token as uuid) and cancelled_at is not null
                returning *, case
                    when cast(null as text) is null then errors
                    else case
                        when jsonb_array_length(errors) >= 10
                            then jsonb_path_query_array(errors, '$[0 to 2]')
                                || jsonb_path_query_array(errors, '$[last - 5 to last]')
                        else coalesce(errors, '[]')
                    end || jsonb_build_array(jsonb_build_object(
                        'number', coalesce(cast(errors -> -1 ->> 'number' as integer), jsonb_array_length(errors), 0) + 1,
                        'attempt', attempts, 'at', coalesce(cast(p_now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast(null as text)
                    ))
                end as all_errors
            )
            insert into public.tq_emails_history (
                id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
                consumer, headers, errors, payload,
                outcome
            )
            select
                id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as timestamptz), statement_timestamp()), group_key, dedup_key, producer,
                consumer, headers, all_errors, payload,
                'cancelled'
            from gone
            returning id
        loop
            return next ended;
        end loop;
        released := coalesce(released, ended);
        if released is null and cardinality(p_ids) > 0 then
            raise exception using errcode = 'TQ003', message = 'The lease on ' || array_to_string(p_ids[:5], ', ')
                || ' is lost, so nothing was released.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
        perform public.tq_emails_notify(waited_for);
    end;
    $$;

-- public.tq_emails_extend: the lease on message p_id, held under p_token, ends p_seconds (else 60.0) from now; for consumers.
-- Returns that end. Error TQ003 if the lease is lost. Locks: the message, until the transaction ends.
create or replace function public.tq_emails_extend(
    p_id bigint,
    p_token uuid,
    p_seconds float8 default null,
    p_now timestamptz default null
) returns timestamptz language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    declare
        p_lease float8 := coalesce(p_seconds, 60.0);
        extended bigint;
        lease_end timestamptz;
    begin
        if p_lease is null or not p_lease between 0 and 3200000000 then
            raise exception using errcode = 'TQ001',
                message = 'seconds is ' || coalesce(cast(p_lease as text), 'null') || '.',
                hint = 'Give seconds, from 0 to 100 years.';
        end if;
        update public.tq_emails
        set lease_until = coalesce(cast(p_now as timestamptz), statement_timestamp()) + cast(p_lease as float8) * interval '1 second'
        where id = any(cast(array[p_id] as bigint[])) and token = cast(p_token as uuid)
        returning id, lease_until
        into extended, lease_end;
        if lease_end is null then
            raise exception using errcode = 'TQ003',
                message = 'The lease on ' || p_id || ' is lost, so it was not extended.',
                hint = 'It expired, or the message was finished before: make the lease longer than the work.';
        end if;
        return lease_end;
    end;
    $$;

-- public.tq_emails_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers. Locks: none.
create or replace function public.tq_emails_stats(
    p_now timestamptz default null
) returns table (
    ready bigint, scheduled bigint, in_progress bigint, dead bigint, blocked bigint, oldest_age float8, finished bigint
) language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    begin
        return query select live.*, ended.* from (
            select
                (select count(*) from public.tq_emails where state = 'ready'),
                (select count(*) from public.tq_emails where state = 'scheduled'),
                (select count(*) from public.tq_emails where state = 'in_progress'),
                (select count(*) from public.tq_emails where state = 'dead'),
                (select count(*) from public.tq_emails where state = 'blocked'),
                (
                    select cast(extract(epoch from coalesce(cast(p_now as timestamptz), statement_timestamp()) - pushed_at) as float8)
                    from public.tq_emails where state = 'ready' order by id limit 1
                )
        ) as live, (
            select case when counted < 100000 then counted else greatest(counted, (
                select cast(reltuples / nullif(relpages, 0) * (
                    pg_relation_size(oid) / cast(current_setting('block_size') as integer)
                ) as bigint)
                from pg_class where oid = cast('public.tq_emails_history' as regclass)
            )) end
            from (
                select count(*) as counted from (select 1 from public.tq_emails_history where finished_at is not null limit 100000) as few
            ) as counts
        ) as ended;
    end;
    $$;

-- public.tq_emails_peek: the first p_n messages of a state with ids above p_after, claiming none; for observers. Locks: none.
create or replace function public.tq_emails_peek(
    p_n integer default 10,
    p_state text default 'ready',
    p_after bigint default 0
) returns table (
    id bigint, payload json, headers json, state text, attempts integer, priority integer, group_key text,
    dedup_key text, producer text, consumer text, pushed_at timestamptz, due_at timestamptz,
    first_popped_at timestamptz, popped_at timestamptz, lease_until timestamptz, finished_at timestamptz, errors jsonb
) language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    begin
        -- The state is spelled into each statement: its index serves no parameter.
        case p_state
            when 'ready' then
                return query
                    select
                        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
                        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
                    from public.tq_emails
                    where state = 'ready' and id > p_after
                    order by id
                    limit p_n;
            when 'scheduled' then
                return query
                    select
                        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
                        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
                    from public.tq_emails
                    where state = 'scheduled' and id > p_after
                    order by id
                    limit p_n;
            when 'in_progress' then
                return query
                    select
                        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
                        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
                    from public.tq_emails
                    where state = 'in_progress' and id > p_after
                    order by id
                    limit p_n;
            when 'dead' then
                return query
                    select
                        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
                        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
                    from public.tq_emails
                    where state = 'dead' and id > p_after
                    order by id
                    limit p_n;
            when 'blocked' then
                return query
                    select
                        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
                        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
                    from public.tq_emails
                    where state = 'blocked' and id > p_after
                    order by id
                    limit p_n;
            else
                raise exception using errcode = 'TQ001', message = coalesce(p_state, 'null') || ' is no state.',
                    hint = 'Give one of: ready, scheduled, in_progress, dead, blocked.';
        end case;
    end;
    $$;

-- public.tq_emails_history: the last p_n finished messages with ids from p_low to p_high, highest id first; for observers.
-- Locks: none.
create or replace function public.tq_emails_history(
    p_n integer default 10,
    p_low bigint default 0,
    p_high bigint default 9223372036854775807
) returns table (
    id bigint, payload json, headers json, state text, attempts integer, priority integer, group_key text,
    dedup_key text, producer text, consumer text, pushed_at timestamptz, due_at timestamptz,
    first_popped_at timestamptz, popped_at timestamptz, lease_until timestamptz, finished_at timestamptz, errors jsonb
) language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
    #variable_conflict use_column
    begin
        return query
            select
                id, payload, headers,
                coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state, attempts,
                priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
                cast(null as timestamptz) as lease_until, finished_at, errors
            from public.tq_emails_history
            where id between p_low and p_high
            order by id desc
            limit p_n;
    end;
    $$;

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
            where pronamespace = cast('public' as regnamespace) and proname in ('tq_emails_check', 'tq_emails_characters', 'tq_emails_claim', 'tq_emails_list', 'tq_emails_notify', 'tq_emails_options', 'tq_emails_remove', 'tq_emails_sweep', 'tq_emails_push', 'tq_emails_push_many', 'tq_emails_push_each', 'tq_emails_cancel', 'tq_emails_pop', 'tq_emails_take', 'tq_emails_look', 'tq_emails_wait', 'tq_emails_complete', 'tq_emails_fail', 'tq_emails_release', 'tq_emails_extend', 'tq_emails_stats', 'tq_emails_peek', 'tq_emails_history')
        loop
            if outdated then
                execute format('drop routine %s', made);
            else
                execute format('revoke all on routine %s from public', made);
            end if;
        end loop;
    end
    $$;
