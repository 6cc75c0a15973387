-- Procedures about messages that wait for others.

-- name: free
-- {queue}_free: make the messages due that wait for no others any more, and cancel those that a dead letter cancels.
-- For {queue}_sweep. Returns how many are due. It looks at up to 1,000 rows about each queue.
-- Locks: the rows about these messages, until the transaction ends; others pass over them.
create or replace function {queue}_free(p_now timestamptz) returns bigint language plpgsql as $$
    #variable_conflict use_column
    declare
        awaited text;
        ended bigint[];
        cancelled bigint[];
        fronts bigint[];
        each_one bigint;
        told boolean;
    begin
        for awaited in
            {sql awaited_tables}
        loop
            continue when awaited = ''; -- the heads
            cancelled := null;
            if exists (select from {catalogue} where {table_of_entry} = awaited) then
                execute format(
                    $look$
                        with ended (id, message, cancels) as (
                            {sql ended_dependencies on_table=$1 due=far n=1000}
                        ), locked as (
                            select ended.*
                            from ended join {dependencies} as waiting on waiting.id = ended.id
                            for update of waiting skip locked
                        )
                        select array_agg(id), array_agg(message) filter (where cancels) from locked
                    $look$,
                    '{prefix}' || awaited
                )
                into ended, cancelled using awaited;
            else
                ended := array(
                    select id from {dependencies} where id = any(array(
                        {sql orphaned_dependencies on_table=awaited n=1000}
                    ))
                    for update skip locked
                );
            end if;
            for each_one, told in
                {sql cancel ids=cancelled}
            loop
            end loop;
            {sql forget_dependencies ids=ended};
        end loop;
        ended := array(
            select id from {dependencies} where id = any(array(
                {sql freed_heads n=1000}
            ))
            for update skip locked
        );
        {sql free_heads ids=ended due=far};
        {sql forget_dependencies ids=ended};
        -- [grouped]
        fronts := array(
            {sql waiting_fronts n=1000 due=far}
        );
        {sql block_fronts ids=fronts due=far};
        -- [end]
        return cardinality(ended);
    end;
    $$;

-- name: hold_back
-- {queue}_hold_back: the messages p_ids, which this transaction has pushed, wait until those of p_after have left their
-- queues. p_delay and p_due say when they were to be ready. For {queue}_push and {queue}_push_many.
-- Locks: none that another transaction waits for.
create or replace function {queue}_hold_back(
    p_ids bigint[], p_after json, p_on_dead text, p_delay float8, p_due timestamptz
) returns void language plpgsql as $$
    #variable_conflict use_column
    declare
        own text := (select name from {catalogue} where {table_of_entry} = '{table}');
        other record;
        missing bigint[];
        refusal text[];
    begin
        if p_after is null then
            return;
        end if;
        if p_on_dead is null or p_on_dead not in ('wait', 'continue', 'cancel') then
            refusal := array['on_dead is ' || coalesce(p_on_dead, 'null') || '.', 'Give wait, continue or cancel.'];
        elseif json_typeof(p_after) <> 'array' then
            refusal := array['after is no JSON array.', 'Give ids, and pairs of the name of a queue and an id.'];
        elseif exists (
            select from json_array_elements(p_after) as given (value)
            where not case json_typeof(value)
                when 'number' then cast(value as text) ~ '^[0-9]{1,18}$'
                when 'array' then json_array_length(value) = 2 and json_typeof(value -> 0) = 'string'
                    and cast(value -> 1 as text) ~ '^[0-9]{1,18}$'
                else false
            end
        ) then
            refusal := array[
                'after has an element that names no message.', 'Give ids, and pairs of the name of a queue and an id.'
            ];
        end if;
        if refusal is not null then
            raise exception using errcode = 'TQ001', message = refusal[1], hint = refusal[2];
        end if;
        for other in
            select given.name, given.ids, cast(definition as json) as entry, {table_of_entry} as table_name
            from (
                select name, array_agg(distinct id) as ids
                from json_array_elements(p_after) as element (value)
                cross join lateral (
                    select coalesce(value ->> 0, own), cast(cast(coalesce(value -> 1, value) as text) as bigint)
                ) as named (name, id)
                group by name
            ) as given
            left join {catalogue} using (name)
        loop
            refusal := case
                when other.entry is null or coalesce(other.entry ->> 'keep', other.entry ->> 'topic') is not null then
                    array[format('There is no queue %L.', other.name), 'Give the name of a queue.']
                when other.entry ->> 'delivery' = 'at_most_once' then array[
                    format(
                        'The queue %L delivers at most once, so a message leaves it before it is finished.', other.name
                    ),
                    'Wait for messages of queues that deliver at least once.'
                ]
                when other.entry ->> 'dead_letter_to' is not null then array[
                    format('Dead letters of the queue %L move to another one, as if they were finished.', other.name),
                    'Wait for messages of queues without dead_letter_to.'
                ]
            end;
            -- A queue without a history cannot tell an id of no message from that of a finished one.
            if refusal is null and other.entry ->> 'history' <> 'none' then
                execute format(
                    'select array_agg(id order by id) from unnest($1) as given (id) where id = any($2) or not exists ('
                        'select from {prefix}%1$s as message where message.id = given.id'
                    ') and not exists (select from {prefix}%1$s_history as message where message.id = given.id)',
                    other.table_name
                )
                into missing using other.ids, case when other.name = own then p_ids end;
                if missing is not null then
                    refusal := array[
                        format(
                            'The queue %L has no messages %s; nothing was pushed.', other.name,
                            array_to_string(missing[:5], ', ') || case when missing[6] > 0 then ', ...' else '' end
                        ),
                        'Give the ids of messages that are there, or in the history.'
                    ];
                end if;
            end if;
            if refusal is not null then
                raise exception using errcode = 'TQ001', message = refusal[1], hint = refusal[2];
            end if;
            insert into {dependencies} (queue, message, on_table, on_id, on_dead)
            select '{table}', message, other.table_name, awaited, p_on_dead
            from unnest(p_ids) as message cross join unnest(other.ids) as awaited;
        end loop;
        insert into {dependencies} (queue, message, on_table, on_id, on_dead, delay, due)
        select '{table}', message, '', 0, p_on_dead, p_delay, p_due from unnest(p_ids) as message;
        update {queue} set due_at = {far}, state = case state when 'blocked' then state else 'scheduled' end
        where id = any(p_ids);
    end;
    $$;
