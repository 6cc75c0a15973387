-- Procedures that end batches.

-- name: call_back
-- {queue}_call_back: push the callback p_pushes of the batch p_id, with its numbers in a header. For {queue}_settle.
-- Returns false if the queue of the callback was dropped. Which columns that queue has, its definition tells.
create or replace function {queue}_call_back(p_pushes json, p_id bigint, p_numbers jsonb, p_now timestamptz)
returns boolean language plpgsql as $$
    declare
        target text := p_pushes ->> 'table';
        entry json := (select cast(definition as json) from {catalogue} where {table_of_entry} = target);
        origin text := (select name from {catalogue} where {table_of_entry} = '{table}');
    begin
        if p_pushes is null then
            return true;
        elseif entry is null then
            return false;
        end if;
        execute format(
            'insert into {prefix}%s (payload, headers, producer, group_key, pushed_at, due_at, state%s)'
                ' values (%s, $2, session_user, $3, $4, $5, $6%s)',
            target,
            case when entry ->> 'expires' is not null then ', expires_at' end,
            case entry ->> 'payload'
                when 'bytes' then 'decode($1, ''base64'')' when 'text' then '$1' else 'cast($1 as json)'
            end,
            case when entry ->> 'expires' is not null then ', $4 + $7 * interval ''1 second''' end
        )
        using
            p_pushes ->> 'payload',
            cast(
                coalesce(cast(p_pushes -> 'headers' as jsonb), '{}')
                || jsonb_build_object(
                    'tablequeue-batch', jsonb_build_object('id', p_id, 'queue', origin) || p_numbers
                ) as json
            ),
            case when entry ->> 'strict' = 'true' then '' end,
            {now},
            case when entry ->> 'order' = 'due' then {now} end,
            case when entry ->> 'strict' = 'true' then 'blocked' else 'ready' end,
            cast(entry ->> 'expires' as float8);
        if current_setting('tablequeue.notify', true) is distinct from 'off' then
            perform pg_notify(target, '');
        end if;
        return true;
    end;
    $$;

-- name: callback
-- {queue}_callback: a callback as a batch keeps it, from an object with the name of a queue and a payload; null from
-- null. p_what says which one it is, in refusals. For {queue}_push_batch.
create or replace function {queue}_callback(p_what text, p_given json) returns text language plpgsql as $$
    #variable_conflict use_column
    declare
        target text := (
            select {table_of_entry} from {catalogue} where name = p_given ->> 'queue'
        );
        entry json := (
            select cast(definition as json) from {catalogue} where name = p_given ->> 'queue'
        );
        payload json := p_given -> 'payload';
        refusal text[];
    begin
        if p_given is null then
            return null;
        end if;
        refusal := case
            when p_given ->> 'queue' is null or payload is null then array[
                p_what || ' is no object with the name of a queue, and a payload.', 'Give both.'
            ]
            when entry is null or coalesce(entry ->> 'keep', entry ->> 'topic') is not null then
                array[format('There is no queue %L.', p_given ->> 'queue'), 'Give the name of a queue.']
            when entry ->> 'groups' = 'true' then array[
                format('%s names %L, which has groups.', p_what, p_given ->> 'queue'),
                'Name a queue without groups, or with fair ones.'
            ]
            when entry ->> 'payload' <> 'json' and json_typeof(payload) <> 'string' then
                array['The payload of ' || p_what || ' is no string.', 'Give one; for a queue of bytes in base64.']
        end;
        if refusal is not null then
            raise exception using errcode = 'TQ001', message = refusal[1], hint = refusal[2];
        end if;
        if entry ->> 'payload' = 'bytes' then
            perform decode(payload #>> '{}', 'base64');
        end if;
        return json_build_object(
            'table', target,
            'payload', case entry ->> 'payload' when 'json' then cast(payload as text) else payload #>> '{}' end
        );
    exception
        when data_exception then
            raise exception using errcode = 'TQ001',
                message = format('The payload of %s cannot be read: %s.', p_what, sqlerrm),
                hint = 'Give a string; for a queue of bytes in base64.';
    end;
    $$;

-- name: settle
-- {queue}_settle: push what the batch p_id has to push by now, and end it if nothing of it is left. For
-- {queue}_end_batches. Returns whether it has pushed or ended. Locks: the batch, until the transaction ends; another
-- transaction passes over it.
create or replace function {queue}_settle(p_id bigint, p_now timestamptz) returns boolean language plpgsql as $$
    #variable_conflict use_column
    declare
        then_pushes text;
        failed_pushes text;
        one bigint;
        does_about_dead text;
        tells boolean;
        has_live boolean;
        has_dead boolean;
        cancels boolean;
        p_pushed bigint;
        p_cancelled bigint;
        p_dead bigint;
        p_finished bigint;
        numbers jsonb;
        done boolean := false;
    begin
        {sql lock_batch}
        into then_pushes, failed_pushes;
        if not found then
            return false;
        end if;
        -- After the lock: what was committed before it is seen.
        {sql open_batches after=p_id-1 n=1}
        into one, does_about_dead, tells, has_live, has_dead, cancels;
        select waiting + in_progress + finished + dead + cancelled, finished, dead, cancelled
        into p_pushed, p_finished, p_dead, p_cancelled
        from {queue}_batch(p_id);
        numbers := jsonb_build_object(
            'total', p_pushed, 'finished', p_finished, 'dead', p_dead, 'cancelled', p_cancelled
        );
        if tells and has_dead and {queue}_call_back(cast(failed_pushes as json), p_id, numbers, p_now) then
            {sql note_failed};
            done := true;
        end if;
        if not has_live and (does_about_dead <> 'wait' or not has_dead)
            and {queue}_call_back(cast(then_pushes as json), p_id, numbers, p_now)
        then
            {sql end_batch};
            done := true;
        end if;
        return done;
    end;
    $$;

-- name: cancel_all
-- {queue}_cancel_all: cancel the messages of the batch p_id, and its dead letters too if p_dead is 1. For
-- {queue}_cancel_batch and {queue}_end_batches. Returns how many were cancelled or told to stop. Locks: the messages.
create or replace function {queue}_cancel_all(p_id bigint, p_dead integer, p_now timestamptz)
returns bigint language plpgsql as $$
    #variable_conflict use_column
    declare
        members bigint[];
        message bigint;
        told boolean;
        cancelled bigint := 0;
    begin
        loop
            members := array(
                {sql uncancelled n=1000}
            );
            exit when cardinality(members) = 0;
            for message, told in
                {sql cancel ids=members}
            loop
                cancelled := cancelled + 1;
            end loop;
        end loop;
        return cancelled;
    end;
    $$;

-- name: end_batches
-- {queue}_end_batches: look at the open batch p_id, or if that is null at the next 100 of them, and do what is due:
-- cancel what a dead letter cancels, push callbacks, end batches of which nothing is left. For the other functions.
-- Returns how many batches have pushed or ended.
-- Only under READ COMMITTED, where each look sees what was committed before it: else a batch could end too early.
-- The session remembers the last batch that it has looked at in the setting tablequeue.{table}__batch.
create or replace function {queue}_end_batches(p_id bigint, p_now timestamptz) returns bigint language plpgsql as $$
    #variable_conflict use_column
    declare
        p_n integer := case when p_id is null then 100 else 1 end;
        last_one bigint := nullif(current_setting('tablequeue.{table}__batch', true), '');
        p_after bigint := coalesce(p_id - 1, last_one, 0);
        one bigint := 0;
        looks integer := 0;
        does_about_dead text;
        tells boolean;
        has_live boolean;
        has_dead boolean;
        cancels boolean;
        settled bigint := 0;
    begin
        if current_setting('transaction_isolation') <> 'read committed' then
            return 0;
        end if;
        for one, does_about_dead, tells, has_live, has_dead, cancels in
            {sql open_batches}
        loop
            looks := looks + 1;
            if cancels and has_dead then
                perform {queue}_cancel_all(one, 0, p_now);
            end if;
            if (tells and has_dead) or (cancels and has_dead)
                or (not has_live and (does_about_dead <> 'wait' or not has_dead))
            then
                settled := settled + cast({queue}_settle(one, p_now) as integer);
            end if;
        end loop;
        if p_id is null then
            perform set_config(
                'tablequeue.{table}__batch', cast(case when looks = p_n then one else 0 end as text), false
            );
        end if;
        return settled;
    end;
    $$;

-- name: push_batch
-- {queue}_push_batch: push a JSON array of messages as a batch, for producers. Returns the id of the batch. A message
-- is an object as in {queue}_push_each.
-- p_then is the callback that is pushed when all of them are finished, and p_failed the one that is pushed when one
-- becomes a dead letter: objects with the name of a queue, and a payload. p_on_dead says what a dead letter does to the
-- batch: 'wait', 'continue' or 'cancel'.
-- Locks: as {queue}_push_each. All of them are pushed, or none.
create or replace function {queue}_push_batch(
    p_messages json,
    p_then json default null,
    p_failed json default null,
    p_on_dead text default 'wait',
    p_producer text default null,
    p_now timestamptz default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    declare
        p_then_push text := {queue}_callback('then', p_then);
        p_failed_push text := {queue}_callback('failed', p_failed);
        p_pushed bigint;
        opened bigint;
        members bigint[];
    begin
        if p_on_dead is null or p_on_dead not in ('wait', 'continue', 'cancel') then
            raise exception using errcode = 'TQ001', message = 'on_dead is ' || coalesce(p_on_dead, 'null') || '.',
                hint = 'Give wait, continue or cancel.';
        end if;
        members := array(select * from {queue}_push_each(p_messages, 'raise', p_producer, p_now));
        p_pushed := cardinality(members);
        {sql open_batch}
        into opened;
        update {queue} set batch_id = opened where id = any(members);
        if p_pushed = 0 then
            perform {queue}_settle(opened, p_now);
        end if;
        return opened;
    end;
    $$;

-- name: cancel_batch
-- {queue}_cancel_batch: cancel the messages of the batch p_id, and its dead letters, for producers. Returns how many
-- were cancelled, or told to stop. The batch ends when the last one is finished, and pushes its callback then.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
create or replace function {queue}_cancel_batch(
    p_id bigint,
    p_now timestamptz default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    declare
        within boolean := {is_within};
        cancelled bigint;
    begin
        perform {queue}_batch(p_id); -- an error, if there is none
        cancelled := {queue}_cancel_all(p_id, 1, p_now);
        -- [grouped]
        if not within then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
        if not within then
            perform {queue}_end_batches(p_id, p_now);
        end if;
        return cancelled;
    end;
    $$;

-- name: batch
-- {queue}_batch: the progress of the batch p_id, for observers: how many of its messages wait, are in progress, were
-- finished, are dead letters, or left without being completed; when it was opened, has failed, and has ended.
-- Locks: none.
create or replace function {queue}_batch(
    p_id bigint
) returns table (
    waiting bigint, in_progress bigint, finished bigint, dead bigint, cancelled bigint,
    opened_at timestamptz, failed_at timestamptz, ended_at timestamptz
) language plpgsql security definer set search_path = pg_catalog, {quoted_schema}, pg_temp as $$
    #variable_conflict use_column
    declare
        added bigint;
        gone bigint;
        died bigint;
        total bigint;
    begin
        if not exists (select from {batches} where id = p_id and queue = '{table}') then
            raise exception using errcode = 'TQ001', message = format('There is no batch %s.', p_id),
                hint = 'Give the id of a batch that is open, or ended a short time ago.';
        end if;
        {sql batch_progress}
        into opened_at, failed_at, ended_at, total, cancelled, dead, added, gone, waiting, in_progress, died;
        if ended_at is null then
            dead := died;
            total := total + added;
            cancelled := cancelled + gone;
        else
            waiting := 0;
            in_progress := 0;
        end if;
        finished := total - waiting - in_progress - dead - cancelled;
        return next;
    end;
    $$;
