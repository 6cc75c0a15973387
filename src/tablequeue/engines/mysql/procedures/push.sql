-- Procedures that push.

-- name: insert
-- {queue}_insert: insert one message. Returns its id. For {queue}_push_one and {queue}_push_many; see {queue}_push.
{create} procedure {queue}_insert(
    p_payload {payload},
    p_headers {text},
    p_delay double,
    p_due datetime(6),
    p_priority bigint,
    p_group {text},
    p_key {text},
    p_expires double,
    p_on_conflict {text},
    p_producer {text},
    p_now datetime(6),
    out p_id bigint
)
begin
    declare taken boolean;
    declare refusal varchar(128) character set utf8mb4 default case
        when p_payload is null then
            'A payload is missing, or of another type than those of the queue. Give each message one.'
        -- [json]
        when not json_valid(p_payload) then
            'The payload is no JSON. Give the text of a JSON value.'
        -- [end]
        when p_delay is not null and p_due is not null then
            'Both delay and due are given. Give one of them.'
        when not p_delay between 0 and {longest} then
            'The delay is not from 0 to 100 years. Give another number of seconds.'
        -- [expires]
        when p_expires <= 0 or p_expires > {longest} then
            'expires is not above 0, to 100 years. Give another number of seconds.'
        -- [not expires]
        when p_expires is not null then
            'The messages of this queue do not expire. Leave expires out.'
        -- [not priority]
        when p_priority is not null then
            'The queue does not go by priority. Leave the priority out.'
        -- [priority]
        when not p_priority between -{largest} and {largest} then
            'The priority is not from -{largest} to {largest}. Give another one.'
        -- [groups]
        when p_group is null then
            'The queue has groups, and none is given. Give the message its group.'
        when not char_length(p_group) between 1 and 255 then
            'The group is not of 1 to 255 characters. Give another one.'
        -- [fair]
        when not char_length(p_group) between 1 and 255 then
            'The group is not of 1 to 255 characters. Give another one.'
        -- [ungrouped]
        when p_group is not null then
            'The queue has no groups. Leave the group out.'
        -- [unique_for]
        when p_key is not null then
            'The keys of this queue stay taken for a time, which no procedure notes. Leave the key out.'
        -- [end]
        when not char_length(p_key) between 1 and 255 then
            'The key is not of 1 to 255 characters. Give another one.'
        when p_on_conflict not in ('raise', 'skip', 'return') then
            'on_conflict is not known. Give raise, skip or return.'
    end;
    if refusal is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
    set p_priority = coalesce(p_priority, 0);
    -- [due]
    if p_due is null then
        set p_delay = coalesce(p_delay, 0);
    end if;
    -- [strict]
    set p_group = '';
    -- [end]
    repeat
        set taken = false, p_id = null;
        begin
            declare continue handler for 1062 set taken = true;
            {sql push.take};
        end;
        if not taken then
            {sql push.insert};
            set p_id = last_insert_id();
            {sql push.note};
        elseif p_on_conflict = 'raise' then
            set refusal = concat(
                'A live message has the key ', left(p_key, 40),
                '. Push with another key, or with on_conflict skip or return.'
            );
            signal sqlstate 'TQ002' set mysql_errno = 51002, message_text = refusal;
        elseif p_on_conflict = 'return' then
            with there (dedup_key, id) as (
                {sql find_keys keys=(p_key)}
            )
            select max(id) into p_id from there; -- null if it was finished meanwhile: push again
        end if;
    until p_id is not null or p_on_conflict = 'skip' end repeat;
end //

-- name: push_one
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

-- name: push
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
    {all_or_nothing}
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

-- name: push_many
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
    {all_or_nothing}
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
        -- [bytes]
        begin
            {not_base64}
        -- [end]
        call {queue}_insert(
            -- [json]
            of_it,
            -- [text]
            if(json_type(of_it) = 'STRING', json_unquote(of_it), null),
            -- [bytes]
            if(json_type(of_it) = 'STRING', from_base64(json_unquote(of_it)), null),
            -- [end]
            p_headers, p_delay, p_due, p_priority, p_group, null, p_expires, 'raise', p_producer, p_now, pushed
        );
        -- [bytes]
        end;
        -- [end]
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

-- name: push_all
-- {queue}_push_all: push a JSON array of messages with options of their own. p_ids are their ids, in order, as a JSON
-- array. For {queue}_push_each and {queue}_push_batch.
{create} procedure {queue}_push_all(
    p_messages {text}, p_on_conflict {text}, p_producer {text}, p_now datetime(6),
    out p_ids longtext character set ascii
)
begin
    declare done boolean;
    declare pushed bigint;
    declare given, of_it {text};
    declare ids longtext character set ascii default '';
    declare elements cursor for
        select value, payload from json_table(p_messages, '$[*]' columns (
            place for ordinality, value json path '$', payload json path '$.payload'
        )) as batch order by place;
    declare continue handler for not found set done = true;
    -- [bytes]
    {not_base64}
    -- [end]
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
            -- [text]
            if(json_type(of_it) = 'STRING', json_unquote(of_it), null),
            -- [bytes]
            if(json_type(of_it) = 'STRING', from_base64(json_unquote(of_it)), null),
            -- [end]
            given, p_on_conflict, p_producer, p_now, pushed
        );
        set ids = concat(ids, ',', coalesce(pushed, 'null'));
    end loop;
    close elements;
    set p_ids = concat('[', substr(ids, 2), ']');
end //

-- name: push_each
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
    declare ours boolean;
    declare p_on_conflict, p_producer {text};
    declare p_now datetime(6);
    declare ids longtext character set ascii;
    {all_or_nothing}
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
    call {queue}_push_all(p_messages, p_on_conflict, p_producer, p_now, ids);
    if ours then
        commit;
    end if;
    select id from json_table(ids, '$[*]' columns (
        place for ordinality, id bigint path '$'
    )) as batch order by place;
end //
