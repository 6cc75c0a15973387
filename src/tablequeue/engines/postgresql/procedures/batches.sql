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
revoke all on function {queue}_call_back from public;

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
        opened timestamptz;
        failed timestamptz;
        ended timestamptz;
        p_pushed bigint;
        p_cancelled bigint;
        p_dead bigint;
        final bigint;
        more bigint;
        gone bigint;
        waiting bigint;
        held bigint;
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
        {sql batch_progress}
        into opened, failed, ended, p_pushed, p_cancelled, final, more, gone, waiting, held, p_dead;
        p_pushed := p_pushed + more;
        p_cancelled := p_cancelled + gone;
        numbers := jsonb_build_object(
            'total', p_pushed, 'finished', p_pushed - waiting - held - p_dead - p_cancelled, 'dead', p_dead,
            'cancelled', p_cancelled
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
revoke all on function {queue}_settle from public;

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
        found_ids bigint[];
        each_one bigint;
        told boolean;
        settled bigint := 0;
    begin
        if current_setting('transaction_isolation') <> 'read committed' then
            return 0;
        end if;
        for one, does_about_dead, tells, has_live, has_dead, cancels in
            {sql open_batches}
        loop
            looks := looks + 1;
            while cancels and has_dead loop
                found_ids := array(
                    {sql uncancelled id=one dead=0 n=1000}
                );
                exit when cardinality(found_ids) = 0;
                for each_one, told in
                    {sql cancel ids=found_ids}
                loop
                end loop;
            end loop;
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
revoke all on function {queue}_end_batches from public;
