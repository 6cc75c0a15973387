-- {queue}_push_many: push each element of a JSON array as a payload, for producers. Returns their ids, in that order.
-- [bytes]
-- The payloads are strings in base64.
-- [end]
-- Options, the same for all: headers, delay (seconds), due (in UTC), priority, group, expires (seconds), producer (else
-- the login), now.
-- One insert a message: the ids of an INSERT ... SELECT are consecutive in some settings of the server only.
-- Locks: none that another transaction waits for. All of them are pushed, or none.
{create} procedure {queue}_push_many(p_messages {text}, p_options {text})
    sql security definer
begin
    declare ours, done boolean;
    declare pushed bigint;
    declare p_headers, p_group, p_producer, of_it {text};
    declare p_delay, p_expires double;
    declare p_priority bigint;
    declare p_due, p_now datetime(6);
    declare ids longtext character set ascii default '';
    declare elements cursor for
        select value from json_table(p_messages, '$[*]' columns (
            place for ordinality, value json path '$'
        )) as batch order by place;
    declare continue handler for not found set done = true;
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    call {queue}_list(p_messages);
    call {queue}_options(p_options, '["headers", "delay", "due", "priority", "group", "expires", "producer", "now"]');
    select
        if(json_type(headers) = 'OBJECT', headers, null), delay, expires,
        if(json_type(due) = 'STRING', json_unquote(due), null), priority,
        if(json_type(group_key) = 'STRING', json_unquote(group_key), null),
        if(json_type(producer) = 'STRING', json_unquote(producer), user()),
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_headers, p_delay, p_expires, p_due, p_priority, p_group, p_producer, p_now
    from json_table(p_options, '$' columns (
        headers json path '$.headers',
        delay double path '$.delay',
        expires double path '$.expires',
        due json path '$.due',
        priority bigint path '$.priority',
        group_key json path '$.group',
        producer json path '$.producer',
        clock json path '$.now'
    )) as options;
    open elements;
    batch: loop
        set done = false;
        fetch elements into of_it;
        if done then
            leave batch;
        end if;
        call {queue}_insert(
            -- [json]
            of_it,
            -- [end]
            -- [text]
            if(json_type(of_it) = 'STRING', json_unquote(of_it), null),
            -- [end]
            -- [bytes]
            if(json_type(of_it) = 'STRING', from_base64(json_unquote(of_it)), null),
            -- [end]
            p_headers, p_delay, p_due, p_priority, p_group, null, p_expires, 'raise', p_producer, p_now, pushed
        );
        set ids = concat(ids, ',', pushed);
    end loop;
    close elements;
    if ours then
        commit;
    end if;
    select id from json_table(concat('[', substr(ids, 2), ']'), '$[*]' columns (
        place for ordinality, id bigint path '$'
    )) as batch order by place;
end //
