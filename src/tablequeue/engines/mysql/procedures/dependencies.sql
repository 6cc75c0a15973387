-- Procedures about messages that wait for others.

-- name: free
-- {queue}_free: make the messages due that wait for no others any more, and cancel those that a dead letter cancels.
-- For {queue}_sweep. p_freed is how many are due. It looks at up to 1,000 rows about each queue.
-- A prepared statement takes and returns session variables only: @`tablequeue.awaited` and others.
-- Locks: the rows about these messages, until the transaction ends; others pass over them.
{create} procedure {queue}_free(p_now datetime(6), out p_freed bigint)
begin
    declare awaited {text};
    declare done boolean default false;
    declare found, locked, cancelled, there longtext character set ascii;
    declare others cursor for
        {sql awaited_tables};
    declare continue handler for not found set done = true;
    set p_freed = 0;
    open others;
    tables: loop
        fetch others into awaited;
        if done then
            leave tables;
        elseif awaited = '' then -- the heads
            iterate tables;
        end if;
        set cancelled = null;
        if exists (select 1 from {catalogue} where {table_of_entry} = awaited) then
            set @`tablequeue.awaited` = awaited, @`tablequeue.look` = replace(
                "with ended (id, message, cancels) as (
                    {sql ended_dependencies on_table=? due=far n=1000}
                )
                select json_arrayagg(json_array(id, if(cancels, message, null))) into @`tablequeue.ended` from ended",
                '%s', concat('{prefix}', awaited)
            );
            prepare tablequeue_look from @`tablequeue.look`;
            execute tablequeue_look using @`tablequeue.awaited`;
            deallocate prepare tablequeue_look;
            set found = @`tablequeue.ended`;
        else
            select json_arrayagg(json_array(id, null)) into found from (
                {sql orphaned_dependencies on_table=awaited n=1000}
            ) as orphaned;
        end if;
        if found is not null then
            select json_arrayagg(id), json_arrayagg(coalesce(message, 0)) into locked, cancelled from (
                select waiting.id, ended.message
                from json_table(found, '$[*]' columns (id bigint path '$[0]', message bigint path '$[1]')) as ended
                straight_join {dependencies} as waiting force index (primary) on waiting.id = ended.id
                for update skip locked
            ) as locked_rows;
            select json_arrayagg(id) into there from (
                select distinct id from (
                    {sql cancel.lock ids=coalesce(cancelled,'[]')}
                ) as message
            ) as each_one;
            {sql cancel.change ids=coalesce(there,'[]')};
            {sql forget_dependencies ids=coalesce(locked,'[]')};
        end if;
    end loop;
    close others;
    select json_arrayagg(id) into found from (
        {sql freed_heads n=1000}
    ) as head;
    if found is not null then
        select json_arrayagg(id), count(*) into locked, p_freed from (
            select head.id
            from json_table(found, '$[*]' columns (id bigint path '$')) as given
            straight_join {dependencies} as head force index (primary) on head.id = given.id
            for update skip locked
        ) as locked_rows;
        {sql free_heads ids=coalesce(locked,'[]') due=far};
        {sql forget_dependencies ids=coalesce(locked,'[]')};
    end if;
    -- [grouped]
    select json_arrayagg(id) into found from (
        {sql waiting_fronts n=1000 due=far}
    ) as front;
    {sql block_fronts ids=coalesce(found,'[]') due=far};
    -- [end]
end //

-- name: hold_back
-- {queue}_hold_back: the messages of the JSON array p_ids, which this transaction has pushed, wait until those of the
-- option `after` have left their queues. The options `delay` and `due` say when they were to be ready. For {queue}_push
-- and {queue}_push_many.
-- A prepared statement returns into session variables only: @`tablequeue.missing` and others.
-- Locks: none that another transaction waits for.
{create} procedure {queue}_hold_back(p_ids longtext character set ascii, p_options {text})
hold_back: begin
    declare awaited {text} default json_extract(p_options, '$.after');
    declare own, other, entry, other_table, does_about_dead {text};
    declare other_ids longtext character set ascii;
    declare p_delay double;
    declare p_due datetime(6);
    declare wrong bigint;
    declare done boolean default false;
    declare refusal varchar(128) character set utf8mb4;
    declare others cursor for
        select whose, json_arrayagg(id) from (
            select distinct
                if(json_type(value) = 'ARRAY', json_unquote(json_extract(value, '$[0]')), own) as whose,
                cast(if(json_type(value) = 'ARRAY', json_extract(value, '$[1]'), value) as signed) as id
            from json_table(awaited, '$[*]' columns (value json path '$')) as element
        ) as each_one
        group by whose;
    declare continue handler for not found set done = true;
    if awaited is null or json_type(awaited) = 'NULL' then
        leave hold_back;
    end if;
    select
        if(json_type(on_dead) = 'STRING', json_unquote(on_dead), 'wait'), delay,
        if(json_type(due) = 'STRING', json_unquote(due), null)
    into does_about_dead, p_delay, p_due
    from json_table(p_options, '$' columns (
        on_dead json path '$.on_dead', delay double path '$.delay', due json path '$.due'
    )) as options;
    select
        max(not case json_type(value)
            when 'INTEGER' then true
            when 'ARRAY' then json_length(value) = 2 and json_type(json_extract(value, '$[0]')) = 'STRING'
                and json_type(json_extract(value, '$[1]')) = 'INTEGER'
            else false
        end)
    into wrong
    from json_table(awaited, '$[*]' columns (value json path '$')) as element;
    if does_about_dead not in ('wait', 'continue', 'cancel') then
        set refusal = 'on_dead is not known. Give wait, continue or cancel.';
    elseif wrong then
        set refusal = 'after has what names no message. Give ids, and pairs of the name of a queue and an id.';
    end if;
    if refusal is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
    select name into own from {catalogue} where {table_of_entry} = '{table}';
    open others;
    queues: loop
        fetch others into other, other_ids;
        if done then
            leave queues;
        end if;
        select max(definition), max({table_of_entry}) into entry, other_table from {catalogue} where name = other;
        set refusal = case
            when entry is null or json_contains_path(entry, 'one', '$.keep', '$.topic') then
                concat('There is no queue ', left(other, 40), '. Give the name of a queue.')
            when json_unquote(json_extract(entry, '$.delivery')) = 'at_most_once' then
                concat('The queue ', left(other, 40), ' delivers at most once. Wait for messages of other queues.')
            when json_contains_path(entry, 'one', '$.dead_letter_to') then
                concat('Dead letters of ', left(other, 40), ' move away. Wait for messages of other queues.')
        end;
        -- A queue without a history cannot tell an id of no message from that of a finished one.
        if refusal is null and json_unquote(json_extract(entry, '$.history')) <> 'none' then
            set @`tablequeue.awaited` = other_ids, @`tablequeue.pushed` = if(other = own, p_ids, '[]'),
                @`tablequeue.look` = replace(
                    "select min(given.id) into @`tablequeue.missing`
                    from json_table(@`tablequeue.awaited`, '$[*]' columns (id bigint path '$')) as given
                    where json_contains(@`tablequeue.pushed`, cast(given.id as char)) or (
                        not exists (select 1 from %s as message where message.id = given.id)
                        and not exists (select 1 from %s_history as message where message.id = given.id)
                    )",
                    '%s', concat('{prefix}', other_table)
                );
            prepare tablequeue_look from @`tablequeue.look`;
            execute tablequeue_look;
            deallocate prepare tablequeue_look;
            if @`tablequeue.missing` is not null then
                set refusal = concat(
                    'The queue ', left(other, 30), ' has no message ', @`tablequeue.missing`,
                    '; nothing was pushed. Give ids that are there.'
                );
            end if;
        end if;
        if refusal is not null then
            signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
        end if;
        insert into {dependencies} (queue, message, on_table, on_id, on_dead)
        select '{table}', pushed.id, other_table, given.id, does_about_dead
        from json_table(p_ids, '$[*]' columns (id bigint path '$')) as pushed
        cross join json_table(other_ids, '$[*]' columns (id bigint path '$')) as given;
    end loop;
    close others;
    insert into {dependencies} (queue, message, on_table, on_id, on_dead, delay, due)
    select '{table}', pushed.id, '', 0, does_about_dead, p_delay, p_due
    from json_table(p_ids, '$[*]' columns (id bigint path '$')) as pushed;
    update json_table(p_ids, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id
    set due_at = {far}, state = case state when 'blocked' then 'blocked' else 'scheduled' end;
end //
