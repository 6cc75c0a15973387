-- {queue}_push_one: push one message with its own options. Returns its id. For {queue}_push and {queue}_push_each.
-- Strings are read as JSON: from a surrogate pair, MariaDB's JSON_TABLE returns nothing in a text column.
{create} procedure {queue}_push_one(
    p_payload {payload},
    p_options {text},
    p_on_conflict {text},
    p_producer {text},
    p_now datetime(6),
    out p_id bigint
)
begin
    declare p_headers, p_group, p_key {text};
    declare p_delay, p_expires double;
    declare p_priority bigint;
    declare p_due datetime(6);
    select
        if(json_type(headers) = 'OBJECT', headers, null), delay, expires,
        if(json_type(due) = 'STRING', json_unquote(due), null), priority,
        if(json_type(group_key) = 'STRING', json_unquote(group_key), null),
        if(json_type(dedup_key) = 'STRING', json_unquote(dedup_key), null)
    into p_headers, p_delay, p_expires, p_due, p_priority, p_group, p_key
    from json_table(p_options, '$' columns (
        headers json path '$.headers',
        delay double path '$.delay',
        expires double path '$.expires',
        due json path '$.due',
        priority bigint path '$.priority',
        group_key json path '$.group',
        dedup_key json path '$.key'
    )) as options;
    call {queue}_insert(
        p_payload, p_headers, p_delay, p_due, p_priority, p_group, p_key, p_expires, p_on_conflict, p_producer, p_now,
        p_id
    );
end //
