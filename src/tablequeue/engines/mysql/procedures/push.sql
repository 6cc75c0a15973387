-- {queue}_push: push one message, for producers. Returns its id. If a live message has its key: error 51002, or with
-- on_conflict 'skip' null, or with 'return' the id of that message.
-- Options: headers, delay (seconds), due (in UTC), priority, group, key, expires (seconds), on_conflict (else 'raise'),
-- producer (else the login), now.
-- Locks: none that another transaction waits for, except pushes of the same key until the transaction ends.
-- A crash before the commit leaves nothing.
{create} procedure {queue}_push(p_payload {payload}, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare pushed bigint;
    declare p_on_conflict, p_producer {text};
    declare p_now datetime(6);
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    call {queue}_options(
        p_options,
        '["headers", "delay", "due", "priority", "group", "key", "expires", "on_conflict", "producer", "now"]'
    );
    select
        if(json_type(on_conflict) = 'STRING', json_unquote(on_conflict), 'raise'),
        if(json_type(producer) = 'STRING', json_unquote(producer), user()),
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_on_conflict, p_producer, p_now
    from json_table(p_options, '$' columns (
        on_conflict json path '$.on_conflict', producer json path '$.producer', clock json path '$.now'
    )) as options;
    call {queue}_push_one(p_payload, p_options, p_on_conflict, p_producer, p_now, pushed);
    if ours then
        commit;
    end if;
    select pushed as id;
end //
