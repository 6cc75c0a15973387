-- {queue}_cancel: cancel the messages of the JSON array p_ids, for producers. Returns those that there are, and whether
-- each was told. A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop: if it
-- fails, is released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Options: now.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
{create} procedure {queue}_cancel(p_ids {text}, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_now datetime(6);
    declare there, gone longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    call {queue}_list(p_ids);
    call {queue}_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    select json_arrayagg(id), json_arrayagg(if(told, 0, id)) into there, gone from (
        select distinct id, told from (
            {sql cancel/1}
        ) as message
    ) as each_one;
    if there is not null then
        {sql cancel/2 ids=there};
        {sql cancel/3 ids=there};
        -- [keep]
        {sql cancel/4 ids=there};
        -- [end]
    end if;
    if ours then
        commit;
        -- [grouped]
        call {queue}_move_on(p_now);
        -- [end]
    end if;
    select id, not json_contains(gone, cast(id as char)) as told
    from json_table(coalesce(there, '[]'), '$[*]' columns (id bigint path '$')) as done;
end //
