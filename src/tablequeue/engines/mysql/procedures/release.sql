-- {queue}_release: release the messages of the JSON array p_ids that are held under p_token, for consumers. Returns
-- their ids. They are ready after a delay, and the attempt does not count; those that were told to stop end. Error
-- 51003 if none of them is held.
-- Options: delay (seconds, else 0), now.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
{create} procedure {queue}_release(p_ids {text}, p_token {token}, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_delay double;
    declare p_now datetime(6);
    declare held, ended longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    call {queue}_list(p_ids);
    call {queue}_options(p_options, '["delay", "now"]');
    select coalesce(delay, 0), if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_delay, p_now
    from json_table(p_options, '$' columns (
        delay double path '$.delay',
        clock json path '$.now'
    )) as options;
    if not p_delay between 0 and {longest} then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The delay is not from 0 to 100 years. Give another number of seconds.';
    end if;
    select json_arrayagg(id) into held from (
        select distinct id from (
            {sql release/1}
        ) as message
    ) as each_one;
    if held is not null then
        {sql release/2 ids=held};
    end if;
    call {queue}_cancel_held(p_ids, p_token, null, p_now, ended);
    if held is null and ended is not null then
        set held = ended;
    elseif ended is not null then
        set held = json_merge_preserve(held, ended);
    elseif held is null and json_length(p_ids) > 0 then
        signal sqlstate 'TQ003' set mysql_errno = 51003,
            message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
    end if;
    if ours then
        commit;
    end if;
    select id from json_table(coalesce(held, '[]'), '$[*]' columns (id bigint path '$')) as done;
end //
