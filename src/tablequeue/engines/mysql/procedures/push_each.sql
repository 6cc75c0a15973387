-- {queue}_push_each: push a JSON array of messages with options of their own, for producers. Returns the ids in order.
-- A message is an object: payload, and optionally headers, delay, due, priority, group, key,
-- expires.
-- [bytes]
-- The payload is a string in base64.
-- [end]
-- If a message has the key of one already: error 51002 and none is pushed, or with on_conflict 'skip' null for that
-- one, or with 'return' the id of the message that has it.
-- Options: on_conflict (else 'raise'), producer (else the login), now.
-- Locks: a message waits for another transaction that is pushing the same key. All of them are pushed, or none.
{create} procedure {queue}_push_each(p_messages {text}, p_options {text})
    sql security definer
begin
    declare ours, done boolean;
    declare pushed bigint;
    declare p_on_conflict, p_producer, given, of_it {text};
    declare p_now datetime(6);
    declare ids longtext character set ascii default '';
    declare elements cursor for
        select value, payload from json_table(p_messages, '$[*]' columns (
            place for ordinality, value json path '$', payload json path '$.payload'
        )) as batch order by place;
    declare continue handler for not found set done = true;
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    call {queue}_list(p_messages);
    call {queue}_options(p_options, '["on_conflict", "producer", "now"]');
    select
        if(json_type(on_conflict) = 'STRING', json_unquote(on_conflict), 'raise'),
        if(json_type(producer) = 'STRING', json_unquote(producer), user()),
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_on_conflict, p_producer, p_now
    from json_table(p_options, '$' columns (
        on_conflict json path '$.on_conflict', producer json path '$.producer', clock json path '$.now'
    )) as options;
    open elements;
    batch: loop
        set done = false;
        fetch elements into given, of_it;
        if done then
            leave batch;
        end if;
        call {queue}_options(given, '["payload", "headers", "delay", "due", "priority", "group", "key", "expires"]');
        call {queue}_push_one(
            -- [json]
            of_it,
            -- [end]
            -- [text]
            if(json_type(of_it) = 'STRING', json_unquote(of_it), null),
            -- [end]
            -- [bytes]
            if(json_type(of_it) = 'STRING', from_base64(json_unquote(of_it)), null),
            -- [end]
            given, p_on_conflict, p_producer, p_now, pushed
        );
        set ids = concat(ids, ',', coalesce(pushed, 'null'));
    end loop;
    close elements;
    if ours then
        commit;
    end if;
    select id from json_table(concat('[', substr(ids, 2), ']'), '$[*]' columns (
        place for ordinality, id bigint path '$'
    )) as batch order by place;
end //
