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
end //
