-- {queue}_complete: complete the messages of the JSON array p_ids that p_token holds, for consumers; returns their ids.
-- Error 51003 if it holds none of them: an error undoes the call, so it cannot be raised for some of them.
-- [grouped]
-- Then the next messages of their groups become ready; not in a transaction of the caller's, where the next pop that
-- finds too little sees to it.
-- [end]
-- [not results]
-- Options: now.
-- [end]
-- [results]
-- Options: now, result: any JSON value, which is kept as the result of each of them.
-- [end]
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
{create} procedure {queue}_complete(p_ids {text}, p_token {token}, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_now datetime(6);
    declare held longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    call {queue}_list(p_ids);
    -- [not results]
    call {queue}_options(p_options, '["now"]');
    -- [end]
    -- [results]
    call {queue}_options(p_options, '["now", "result"]');
    -- [end]
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    select json_arrayagg(id) into held from (
        select distinct id from (
            -- [at_most_once]
            {sql complete_at_most_once/1}
            -- [end]
            -- [keep at_least_once]
            {sql complete_keep/1}
            -- [end]
            -- [none]
            {sql complete_none/1}
            -- [end]
        ) as message
    ) as each_one;
    if held is not null then
        -- [at_most_once]
        {sql complete_at_most_once/2 ids=held};
        -- [end]
        -- [keep at_least_once]
        {sql complete_keep/2 ids=held};
        {sql complete_keep/3 ids=held};
        -- [end]
        -- [none]
        {sql complete_none/2 ids=held};
        -- [end]
        -- [results]
        insert into {results} (id, result)
        select done.id, json_extract(p_options, '$.result')
        from json_table(held, '$[*]' columns (id bigint path '$')) as done
        where json_type(json_extract(p_options, '$.result')) <> 'NULL';
        -- [end]
    elseif json_length(p_ids) > 0 then
        signal sqlstate 'TQ003' set mysql_errno = 51003,
            message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
    end if;
    if ours then
        commit;
        -- [grouped]
        call {queue}_move_on(p_now);
        -- [end]
    end if;
    select id from json_table(coalesce(held, '[]'), '$[*]' columns (id bigint path '$')) as done;
end //
