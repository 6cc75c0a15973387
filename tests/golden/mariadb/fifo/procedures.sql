-- A procedure keeps the SQL mode of its creation. In strict mode a value that does not fit is an error.
set session sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';
delimiter //

-- tq_emails_begin: begin a READ COMMITTED transaction, if the caller has none; the calling procedure commits it (p_ours).
-- Else set a savepoint in the caller's transaction. For the other procedures.
-- Error 1568 tells that a transaction is open, because then the isolation level of the next one cannot be set. Only
-- MariaDB has a variable for that.
-- With autocommit off the caller ends the transaction, even one that begins here.
-- MariaDB truncates the result of JSON_ARRAYAGG to group_concat_max_len bytes, even within an id. So this is raised.
create or replace procedure tq_emails_begin(out p_ours boolean)
begin
    declare continue handler for 1568 set p_ours = false;
    set session group_concat_max_len = greatest(@@group_concat_max_len, 1073741824);
    set p_ours = @@autocommit;
    if p_ours then
        set transaction isolation level read committed;
    end if;
    if p_ours then
        start transaction;
    else
        savepoint tablequeue;
    end if;
end //

-- tq_emails_cancel_held: the messages of the JSON array p_ids that are held under p_token, and were told to stop, end. If
-- p_token is null, those whose lease has expired. p_error is kept, if it is not null. p_ended are their ids, or null.
-- For tq_emails_fail, tq_emails_release and tq_emails_sweep.
create or replace procedure tq_emails_cancel_held(
    p_ids longtext character set ascii, p_token varchar(64) character set ascii collate ascii_bin, p_error longtext character set utf8mb4, p_now datetime(6),
    out p_ended longtext character set ascii
)
begin
    select json_arrayagg(id) into p_ended from (
        select distinct id from (
            select message.id
            from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
            where cancelled_at is not null and (token = p_token or (p_token is null and sweep_at <= coalesce(cast(p_now as datetime(6)), utc_timestamp(6))))
            for update
        ) as message
    ) as each_one;
    if p_ended is not null then
        update json_table(p_ended, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        set errors = json_array_append(
            case
                when json_length(errors) >= 10 then json_extract(
                    errors,
                    '$[0]', '$[1]', '$[2]', concat('$[', json_length(errors) - 6, ']'),
                    concat('$[', json_length(errors) - 5, ']'), concat('$[', json_length(errors) - 4, ']'),
                    concat('$[', json_length(errors) - 3, ']'), concat('$[', json_length(errors) - 2, ']'),
                    concat('$[', json_length(errors) - 1, ']')
                )
                else coalesce(errors, '[]')
            end,
            '$', json_object(
                'number', cast(coalesce(
                    json_extract(errors, concat('$[', json_length(errors) - 1, '].number')), json_length(errors), 0
                ) as unsigned) + 1,
                'attempt', attempts, 'at', cast(coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) as char), 'consumer', consumer, 'error', p_error
            )
        )
        where cancelled_at is not null and p_error is not null;
        insert into tq_emails_history (
            id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
            consumer, headers, errors, payload,
            outcome
        )
        select
            message.id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as datetime(6)), utc_timestamp(6)), group_key, dedup_key,
            producer, consumer, headers, errors, payload,
            'cancelled'
        from json_table(p_ended, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        where cancelled_at is not null
        for update;
        delete tq_emails, tq_emails__live_keys
        from json_table(p_ended, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails force index (primary)
            on tq_emails.id = given.id and cancelled_at is not null
        left join tq_emails__live_keys force index (primary) on tq_emails__live_keys.dedup_key = tq_emails.dedup_key;
    end if;
end //

-- tq_emails_find: lock up to p_n ready messages, for tq_emails_pop and tq_emails_take. Returns their ids in the order of the
-- queue, as a JSON array, or null. A session sweeps once a second before it looks. If too few messages were ready, it
-- sweeps after that too, and looks again.
-- JSON_ARRAYAGG aggregates the rows of a derived table with a limit in their order, which only MariaDB can ask it for.
-- In a transaction of the caller's, not p_ours, it finds what that sees: see `claim_find`. If others have claimed some
-- of that since, it has locked messages of others, and is refused with SQLSTATE 40001.
create or replace procedure tq_emails_find(
    p_n bigint, p_ours boolean, p_now datetime(6), out p_ids longtext character set ascii
)
begin
    declare most bigint default if(p_ours, 1000, least(p_n, 1000));
    declare wide, seen, locked, moved, others bigint;
    declare some, passed_over longtext character set ascii;
    declare swept boolean;
    call tq_emails_sweep(1, most, p_now, moved);
    set swept = moved is not null;
    turns: loop
        set wide = 2 * p_n + 32; -- more than are wanted: others may have the first ones
        repeat
            select json_arrayagg(id), count(*) into some, seen from (
                select id, due_at, priority
                from tq_emails force index (tq_emails__state)
                where state = 'ready' and sweep_at is null and id > 0 and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(cast(p_now as datetime(6)), utc_timestamp(6)))
                order by id
                limit wide
            ) as ready;
            select json_arrayagg(id), count(*) into p_ids, locked from (
                select
                    message.id, payload, headers, attempts + 1, pushed_at, coalesce(cast(p_now as datetime(6)), utc_timestamp(6)), coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) + interval null second, priority,
                    convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, due_at, errors
                from json_table(some, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
                where state = 'ready' and sweep_at is null
                limit p_n
                for update skip locked
            ) as ready;
            if not p_ours and @@tx_isolation <> 'READ-COMMITTED' then
                select json_arrayagg(message.id) into passed_over
                from json_table(some, '$[*]' columns (number for ordinality, id bigint path '$')) as message
                where not json_contains(coalesce(p_ids, '[]'), cast(message.id as char)) and (
                    coalesce(json_length(p_ids), 0) < p_n or message.number < (
                        select max(found.number)
                        from json_table(some, '$[*]' columns (number for ordinality, id bigint path '$')) as found
                        where json_contains(p_ids, cast(found.id as char))
                    )
                );
                select count(*) into others from (
                    select state = 'ready' and sweep_at is null as still_ready
                    from json_table(passed_over, '$[*]' columns (id bigint path '$')) as given
                    straight_join tq_emails as message force index (primary) on message.id = given.id
                    for update skip locked
                ) as message
                where still_ready is not true;
                if others > 0 then
                    signal sqlstate '40001' set mysql_errno = 1020,
                        message_text = 'Others claimed messages after this transaction began. Roll back, or use READ COMMITTED.';
                end if;
            end if;
            set wide = wide * 8; -- what was locked is found and locked again, and counts
        until locked = p_n or seen < wide / 8 end repeat;
        if locked = p_n or swept then
            leave turns;
        end if;
        set swept = true;
        call tq_emails_sweep(0, most, p_now, moved);
        if moved = 0 then
            leave turns;
        end if;
    end loop;
end //

-- tq_emails_insert: insert one message. Returns its id. For tq_emails_push_one and tq_emails_push_many; see tq_emails_push.
create or replace procedure tq_emails_insert(
    p_payload longtext character set utf8mb4,
    p_headers longtext character set utf8mb4,
    p_delay double,
    p_due datetime(6),
    p_priority bigint,
    p_group longtext character set utf8mb4,
    p_key longtext character set utf8mb4,
    p_expires double,
    p_on_conflict longtext character set utf8mb4,
    p_producer longtext character set utf8mb4,
    p_now datetime(6),
    out p_id bigint
)
begin
    declare taken boolean;
    declare refusal varchar(128) character set utf8mb4 default case
        when p_payload is null then
            'A payload is missing, or of another type than those of the queue. Give each message one.'
        when not json_valid(p_payload) then
            'The payload is no JSON. Give the text of a JSON value.'
        when p_delay is not null and p_due is not null then
            'Both delay and due are given. Give one of them.'
        when not p_delay between 0 and 3200000000 then
            'The delay is not from 0 to 100 years. Give another number of seconds.'
        when p_expires is not null then
            'The messages of this queue do not expire. Leave expires out.'
        when p_priority is not null then
            'The queue does not go by priority. Leave the priority out.'
        when p_group is not null then
            'The queue has no groups. Leave the group out.'
        when not char_length(p_key) between 1 and 255 then
            'The key is not of 1 to 255 characters. Give another one.'
        when p_on_conflict not in ('raise', 'skip', 'return') then
            'on_conflict is not known. Give raise, skip or return.'
    end;
    if refusal is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
    set p_priority = coalesce(p_priority, 0);
    repeat
        set taken = false, p_id = null;
        begin
            declare continue handler for 1062 set taken = true;
            insert into tq_emails__live_keys (dedup_key, id) select p_key, 0 from dual where p_key is not null;
        end;
        if not taken then
            insert into tq_emails (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state)
            values (
                p_payload, p_headers, p_producer, p_priority, p_group, p_key, coalesce(cast(p_now as datetime(6)), utc_timestamp(6)),
                coalesce(cast(p_due as datetime(6)), coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) + interval p_delay second),
                case
                    when coalesce(cast(p_due as datetime(6)), coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) + interval p_delay second) > coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) then 'scheduled'
                    else 'ready'
                end
            );
            set p_id = last_insert_id();
            update tq_emails__live_keys set id = last_insert_id() where dedup_key = p_key;
        elseif p_on_conflict = 'raise' then
            set refusal = concat(
                'A live message has the key ', left(p_key, 40),
                '. Push with another key, or with on_conflict skip or return.'
            );
            signal sqlstate 'TQ002' set mysql_errno = 51002, message_text = refusal;
        elseif p_on_conflict = 'return' then
            with there (dedup_key, id) as (
                select convert(dedup_key using utf8mb4), id
                from tq_emails__live_keys force index (primary) where dedup_key in (p_key) and id > 0 lock in share mode
            )
            select max(id) into p_id from there; -- null if it was finished meanwhile: push again
        end if;
    until p_id is not null or p_on_conflict = 'skip' end repeat;
end //

-- tq_emails_list: refuse a value that is not a JSON array. For the other procedures.
create or replace procedure tq_emails_list(p_list longtext character set utf8mb4)
begin
    if p_list is null or not json_valid(p_list) or left(ltrim(p_list), 1) <> '[' then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The list is no JSON array. Write it as in [1, 2].';
    end if;
end //

-- tq_emails_options: refuse options that are not a JSON object, not among p_names, or of a wrong type; '{}' has none.
-- For the other procedures: JSON_TABLE would turn a wrong number or a wrong time into zero.
create or replace procedure tq_emails_options(inout p_options longtext character set utf8mb4, p_names longtext character set utf8mb4)
begin
    declare refusal varchar(128) character set utf8mb4;
    set p_options = coalesce(p_options, '{}');
    if not json_valid(p_options) or left(ltrim(p_options), 1) <> '{' then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The options are no JSON object. Give an object, or null for none.';
    end if;
    select concat('There is no option ', left(max(name), 40), '. Leave it out.') into refusal
    from json_table(json_keys(p_options), '$[*]' columns (name longtext character set utf8mb4 path '$')) as given
    where not json_contains(p_names, json_quote(name));
    if refusal is null then
        select max(concat('The option ', name, ' is no ', wanted, '. Give one, or leave it out.')) into refusal
        from (
            select
                name, json_extract(p_options, concat('$.', name)) as value,
                case
                    when name in ('delay', 'lease', 'retry_in', 'seconds', 'age', 'expires') then 'number'
                    when name in ('n', 'priority', 'after', 'low', 'high') then 'whole number'
                    when name in ('due', 'now') then 'time in UTC, as 2040-12-31 23:59:59'
                    when name = 'headers' then 'object'
                    when name not in ('payload', 'result') then 'string'
                end as wanted
            from json_table(p_names, '$[*]' columns (name longtext character set utf8mb4 path '$')) as known
        ) as known
        where json_type(value) <> 'NULL' and not case wanted
            when 'number' then json_type(value) in ('INTEGER', 'DOUBLE')
            when 'whole number' then json_type(value) = 'INTEGER'
            when 'object' then json_type(value) = 'OBJECT'
            when 'string' then json_type(value) = 'STRING'
            -- Without a time zone: MySQL would convert a time with one to the time zone of the session.
            else json_unquote(value) regexp '^[0-9]+-[0-9]+-[0-9]+[ T][0-9]+:[0-9]+:[0-9]+([.][0-9]+)?$'
        end;
    end if;
    if refusal is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
end //

-- tq_emails_push_one: push one message with its own options. Returns its id. For tq_emails_push and tq_emails_push_each.
-- Strings are read as JSON: from a surrogate pair, MariaDB's JSON_TABLE returns nothing in a text column.
create or replace procedure tq_emails_push_one(
    p_payload longtext character set utf8mb4,
    p_options longtext character set utf8mb4,
    p_on_conflict longtext character set utf8mb4,
    p_producer longtext character set utf8mb4,
    p_now datetime(6),
    out p_id bigint
)
begin
    declare p_headers, p_group, p_key longtext character set utf8mb4;
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
    call tq_emails_insert(
        p_payload, p_headers, p_delay, p_due, p_priority, p_group, p_key, p_expires, p_on_conflict, p_producer, p_now,
        p_id
    );
end //

-- tq_emails_push_all: push a JSON array of messages with options of their own. p_ids are their ids, in order, as a JSON
-- array. For tq_emails_push_each and tq_emails_push_batch.
create or replace procedure tq_emails_push_all(
    p_messages longtext character set utf8mb4, p_on_conflict longtext character set utf8mb4, p_producer longtext character set utf8mb4, p_now datetime(6),
    out p_ids longtext character set ascii
)
begin
    declare done boolean;
    declare pushed bigint;
    declare given, of_it longtext character set utf8mb4;
    declare ids longtext character set ascii default '';
    declare elements cursor for
        select value, payload from json_table(p_messages, '$[*]' columns (
            place for ordinality, value json path '$', payload json path '$.payload'
        )) as batch order by place;
    declare continue handler for not found set done = true;
    open elements;
    batch: loop
        set done = false;
        fetch elements into given, of_it;
        if done then
            leave batch;
        end if;
        call tq_emails_options(given, '["payload", "headers", "delay", "due", "priority", "group", "key", "expires"]');
        call tq_emails_push_one(
            of_it,
            given, p_on_conflict, p_producer, p_now, pushed
        );
        set ids = concat(ids, ',', coalesce(pushed, 'null'));
    end loop;
    close elements;
    set p_ids = concat('[', substr(ids, 2), ']');
end //

-- tq_emails_sweep: make messages ready that are due or abandoned. p_moved is their number, or null if the last sweep of
-- this session was less than p_every seconds ago. For tq_emails_find.
-- In a caller's transaction, no other consumer can claim these messages until the commit. So there p_n limits them, for
-- each kind. The session remembers the time of its last sweep in the variable @`tablequeue.tq_emails`.
create or replace procedure tq_emails_sweep(p_every bigint, p_n bigint, p_now datetime(6), out p_moved bigint)
sweep: begin
    declare clock bigint default timestampdiff(microsecond, '2000-01-01', utc_timestamp(6));
    declare promoted bigint;
    declare found, locked longtext character set ascii;
    declare ended longtext character set ascii;
    set p_moved = null;
    if p_now is null and clock < @`tablequeue.tq_emails` + 1000000 * p_every then
        leave sweep;
    end if;
    set @`tablequeue.tq_emails` = clock, p_moved = 0;
    select json_arrayagg(id) into found from (
        (
            select id from tq_emails force index (tq_emails__state)
            where state = 'scheduled' and sweep_at <= coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) order by sweep_at limit p_n
        )
        union all
        (
            select id from tq_emails force index (tq_emails__state)
            where state = 'in_progress' and sweep_at <= coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) order by sweep_at limit p_n
        )
    ) as due;
    if found is not null then
        select json_arrayagg(id), count(*) into locked, p_moved from (
            select message.id, message.cancelled_at is not null as told
            from json_table(found, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
            where sweep_at <= coalesce(cast(p_now as datetime(6)), utc_timestamp(6))
            for update skip locked
        ) as due;
    end if;
    if locked is not null then
        update json_table(locked, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        set state = case when attempts >= 5 then 'dead' else 'ready' end,
            errors = json_array_append(
                case
                    when json_length(errors) >= 10 then json_extract(
                        errors,
                        '$[0]', '$[1]', '$[2]', concat('$[', json_length(errors) - 6, ']'),
                        concat('$[', json_length(errors) - 5, ']'), concat('$[', json_length(errors) - 4, ']'),
                        concat('$[', json_length(errors) - 3, ']'), concat('$[', json_length(errors) - 2, ']'),
                        concat('$[', json_length(errors) - 1, ']')
                    )
                    else coalesce(errors, '[]')
                end,
                '$', json_object(
                    'number', cast(coalesce(
                        json_extract(errors, concat('$[', json_length(errors) - 1, '].number')), json_length(errors), 0
                    ) as unsigned) + 1,
                    'attempt', attempts, 'at', cast(coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) as char), 'consumer', consumer, 'error', 'lease expired'
                )
            ),
            token = null,
            lease_until = null
        where state = 'in_progress' and cancelled_at is null;
        update json_table(locked, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        set state = 'ready'
        where state = 'scheduled';
        call tq_emails_cancel_held(locked, null, 'lease expired', p_now, ended);
    end if;
    set locked = null;
    select json_arrayagg(id) into found from (
        (
            select id from tq_emails_history force index (tq_emails__finished)
            where finished_at <= coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) - interval 2592000.0 second
            order by finished_at
            limit 1000
        )
        union all
        (
            select id from tq_emails_history force index (tq_emails__finished)
            where finished_at is null and popped_at <= coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) - interval 2592000.0 second
            limit 1000
        )
    ) as outdated;
    if found is not null then
        select json_arrayagg(id) into locked from (
            select message.id
            from json_table(found, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails_history as message force index (primary) on message.id = given.id
            for update skip locked
        ) as outdated;
    end if;
    if locked is not null then
        delete tq_emails_history from json_table(locked, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails_history force index (primary) on tq_emails_history.id = given.id;
    end if;
end //

-- tq_emails_undo: after an error, roll back what tq_emails_begin began. For the other procedures.
create or replace procedure tq_emails_undo(p_ours boolean)
begin
    -- The savepoint does not exist if a deadlock has rolled back all of the caller's transaction.
    declare continue handler for 1305 begin end;
    if p_ours then
        rollback;
    else
        rollback to savepoint tablequeue;
    end if;
end //

-- tq_emails_push: push one message, for producers. Returns its id. If a live message has its key: error 51002, or with
-- on_conflict 'skip' null, or with 'return' the id of that message.
-- Options: headers, delay (seconds), due (in UTC), priority, group, key, expires (seconds), on_conflict (else 'raise'),
-- producer (else the login), now.
-- Locks: none that another transaction waits for, except pushes of the same key until the transaction ends.
-- A crash before the commit leaves nothing.
create or replace procedure tq_emails_push(p_payload longtext character set utf8mb4, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare pushed bigint;
    declare p_on_conflict, p_producer longtext character set utf8mb4;
    declare p_now datetime(6);
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_options(
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
    call tq_emails_push_one(p_payload, p_options, p_on_conflict, p_producer, p_now, pushed);
    if ours then
        commit;
    end if;
    select pushed as id;
end //

-- tq_emails_push_many: push each element of a JSON array as a payload, for producers. Returns their ids, in that order.
-- Options, the same for all: headers, delay (seconds), due (in UTC), priority, group, expires (seconds), producer (else
-- the login), now.
-- One insert a message: the ids of an INSERT ... SELECT are consecutive in some settings of the server only.
-- Locks: none that another transaction waits for. All of them are pushed, or none.
create or replace procedure tq_emails_push_many(p_messages longtext character set utf8mb4, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours, done boolean;
    declare pushed bigint;
    declare p_headers, p_group, p_producer, of_it longtext character set utf8mb4;
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
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_list(p_messages);
    call tq_emails_options(p_options, '["headers", "delay", "due", "priority", "group", "expires", "producer", "now"]');
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
        call tq_emails_insert(
            of_it,
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

-- tq_emails_push_each: push a JSON array of messages with options of their own, for producers. Returns the ids in order.
-- A message is an object: payload, and optionally headers, delay, due, priority, group, key,
-- expires.
-- If a message has the key of one already: error 51002 and none is pushed, or with on_conflict 'skip' null for that
-- one, or with 'return' the id of the message that has it.
-- Options: on_conflict (else 'raise'), producer (else the login), now.
-- Locks: a message waits for another transaction that is pushing the same key. All of them are pushed, or none.
create or replace procedure tq_emails_push_each(p_messages longtext character set utf8mb4, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare p_on_conflict, p_producer longtext character set utf8mb4;
    declare p_now datetime(6);
    declare ids longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_list(p_messages);
    call tq_emails_options(p_options, '["on_conflict", "producer", "now"]');
    select
        if(json_type(on_conflict) = 'STRING', json_unquote(on_conflict), 'raise'),
        if(json_type(producer) = 'STRING', json_unquote(producer), user()),
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_on_conflict, p_producer, p_now
    from json_table(p_options, '$' columns (
        on_conflict json path '$.on_conflict', producer json path '$.producer', clock json path '$.now'
    )) as options;
    call tq_emails_push_all(p_messages, p_on_conflict, p_producer, p_now, ids);
    if ours then
        commit;
    end if;
    select id from json_table(ids, '$[*]' columns (
        place for ordinality, id bigint path '$'
    )) as batch order by place;
end //

-- tq_emails_cancel: cancel the messages of the JSON array p_ids, for producers. Returns those that there are, and whether
-- each was told. A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop: if it
-- fails, is released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Options: now.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
create or replace procedure tq_emails_cancel(p_ids longtext character set utf8mb4, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare p_now datetime(6);
    declare there, gone longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_list(p_ids);
    call tq_emails_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    select json_arrayagg(id), json_arrayagg(if(told, 0, id)) into there, gone from (
        select distinct id, told from (
            select message.id, message.state = 'in_progress' as told
            from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
            for update
        ) as message
    ) as each_one;
    if there is not null then
        update json_table(there, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        set cancelled_at = coalesce(cancelled_at, coalesce(cast(p_now as datetime(6)), utc_timestamp(6)))
        where state = 'in_progress';
        insert into tq_emails_history (
            id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
            consumer, headers, errors, payload,
            outcome
        )
        select
            message.id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as datetime(6)), utc_timestamp(6)), group_key, dedup_key,
            producer, consumer, headers, errors, payload,
            'cancelled'
        from json_table(there, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        where state <> 'in_progress'
        for update;
        delete tq_emails, tq_emails__live_keys
        from json_table(there, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails force index (primary)
            on tq_emails.id = given.id and state <> 'in_progress'
        left join tq_emails__live_keys force index (primary) on tq_emails__live_keys.dedup_key = tq_emails.dedup_key;
    end if;
    if ours then
        commit;
    end if;
    select id, not json_contains(gone, cast(id as char)) as told
    from json_table(coalesce(there, '[]'), '$[*]' columns (id bigint path '$')) as done;
end //

-- tq_emails_pop: claim ready messages, for consumers; in the order of the queue, each with the token that finishes it.
-- Options: n (up to how many, else 1), consumer (else the login), lease (seconds, else 60.0), now. A consumer that
-- does not finish a message by the end of the lease has lost it.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
create or replace procedure tq_emails_pop(p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare p_n bigint;
    declare p_consumer longtext character set utf8mb4;
    declare p_lease double;
    declare p_now, p_popped_at, p_lease_until datetime(6);
    declare p_token char(32) character set ascii default replace(uuid(), '-', '');
    declare p_ids longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_options(p_options, '["n", "consumer", "lease", "now"]');
    select
        coalesce(n, 1), if(json_type(consumer) = 'STRING', json_unquote(consumer), user()), lease,
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_n, p_consumer, p_lease, p_now
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        consumer json path '$.consumer',
        lease double path '$.lease',
        clock json path '$.now'
    )) as options;
    if not p_n between 1 and 2147483647 then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'n is not from 1 to 2147483647. Give another number.';
    end if;
    set p_lease = coalesce(p_lease, 60.0);
    if not p_lease between 0 and 3200000000 then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The lease is not from 0 to 100 years. Give another number of seconds.';
    end if;
    call tq_emails_find(p_n, ours, p_now, p_ids);
    set p_popped_at = coalesce(cast(p_now as datetime(6)), utc_timestamp(6)), p_lease_until = p_popped_at + interval p_lease second;
    -- The rows are returned before the change, because a take deletes them. If the change fails, an error follows the
    -- rows, and all is rolled back. So a client must read to the end.
    with message (
        id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key, due_at,
        errors
    ) as (
        select
            message.id, payload, headers, attempts + 1, pushed_at, coalesce(cast(p_popped_at as datetime(6)), utc_timestamp(6)), coalesce(cast(p_popped_at as datetime(6)), utc_timestamp(6)) + interval p_lease second, priority,
            convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, due_at, errors
        from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        where state = 'ready' and sweep_at is null
        limit p_n
        for update skip locked
    )
    select *, p_token as token from message
    order by id;
    if p_ids is not null then
        update json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        set state = 'in_progress',
            attempts = attempts + 1,
            token = p_token,
            consumer = p_consumer,
            popped_at = p_popped_at,
            first_popped_at = coalesce(first_popped_at, p_popped_at),
            lease_until = p_lease_until
        where state = 'ready';
    end if;
    if ours then
        commit;
    end if;
end //

-- tq_emails_take: remove ready messages, for consumers; in the order of the queue. They are finished when the transaction
-- commits.
-- Options: n (up to how many, else 1), consumer (else the login), now.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too. Without a transaction of the caller's they are gone.
create or replace procedure tq_emails_take(p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare p_n bigint;
    declare p_consumer longtext character set utf8mb4;
    declare p_now, p_popped_at datetime(6);
    declare p_ids longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_options(p_options, '["n", "consumer", "now"]');
    select
        coalesce(n, 1), if(json_type(consumer) = 'STRING', json_unquote(consumer), user()),
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_n, p_consumer, p_now
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        consumer json path '$.consumer',
        clock json path '$.now'
    )) as options;
    if not p_n between 1 and 2147483647 then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'n is not from 1 to 2147483647. Give another number.';
    end if;
    call tq_emails_find(p_n, ours, p_now, p_ids);
    set p_popped_at = coalesce(cast(p_now as datetime(6)), utc_timestamp(6));
    -- The rows are returned before the change, which may delete them. If the change fails, an error follows the rows,
    -- and all is rolled back. So a client must read to the end.
    with message (
        id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key, due_at,
        errors
    ) as (
        select
            message.id, payload, headers, attempts + 1, pushed_at, coalesce(cast(p_popped_at as datetime(6)), utc_timestamp(6)), coalesce(cast(p_popped_at as datetime(6)), utc_timestamp(6)) + interval null second, priority,
            convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, due_at, errors
        from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        where state = 'ready' and sweep_at is null
        limit p_n
        for update skip locked
    )
    select * from message
    order by id;
    if p_ids is not null then
        insert into tq_emails_history (
            id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
            producer, consumer, headers, errors, payload
        )
        select
            message.id, attempts + 1, priority, null, pushed_at, due_at, coalesce(first_popped_at, p_popped_at), p_popped_at,
            case when null is null then cast(p_popped_at as datetime(6)) end, group_key, dedup_key, producer, p_consumer,
            headers, errors, payload
        from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id
        where state = 'ready'
        for update;
        delete tq_emails, tq_emails__live_keys
        from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails force index (primary) on tq_emails.id = given.id
        left join tq_emails__live_keys force index (primary) on tq_emails__live_keys.dedup_key = tq_emails.dedup_key
        where state = 'ready';
    end if;
    if ours then
        commit;
    end if;
end //

-- tq_emails_wait: return when a pop may find a message, or after some seconds. For a consumer with an empty queue: call
-- it, and then pop. It begins with a pause, so a queue that is at a limit costs no more than an empty one.
-- Options: seconds (else 20). Each look is a transaction, and the pauses, of a quarter of a second, are in none. In a
-- transaction of the caller's, whose snapshot they would hold, it is refused.
-- It sweeps as pop does: once a second for each session.
create or replace procedure tq_emails_wait(p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours, ready boolean default false;
    declare p_now, ends datetime(6);
    declare p_low_water, moved bigint default 0;
    declare p_seconds double;
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_options(p_options, '["seconds"]');
    set p_seconds = coalesce(json_extract(p_options, '$.seconds'), 20);
    if not p_seconds between 0 and 3200000000 then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The seconds are out of range. Give 0 to 100 years.';
    elseif not ours then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'A transaction is open, or autocommit is off. Commit, and set autocommit, before a wait.';
    end if;
    commit;
    set ends = utc_timestamp(6) + interval p_seconds second;
    while not ready and utc_timestamp(6) < ends do
        do sleep(least(0.25, greatest(0, timestampdiff(microsecond, utc_timestamp(6), ends) / 1000000)));
        call tq_emails_begin(ours);
        call tq_emails_sweep(1, 1000, p_now, moved);
        select count(*) into ready from ( -- the subquery of a SET would wait for those who have locked messages
            select 1 from tq_emails force index (tq_emails__state) where state = 'ready' and sweep_at is null and id > p_low_water and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(cast(p_now as datetime(6)), utc_timestamp(6))) limit 1
        ) as message;
        commit;
    end while;
end //

-- tq_emails_complete: complete the messages of the JSON array p_ids that p_token holds, for consumers; returns their ids.
-- Error 51003 if it holds none of them: an error undoes the call, so it cannot be raised for some of them.
-- Options: now.
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
create or replace procedure tq_emails_complete(p_ids longtext character set utf8mb4, p_token varchar(64) character set ascii collate ascii_bin, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare p_now datetime(6);
    declare held longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_list(p_ids);
    call tq_emails_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    if not ours and @@tx_isolation = 'READ-COMMITTED' and json_length(p_ids) > 0 then
        select json_arrayagg(message.id) into p_ids
        from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given
        straight_join tq_emails as message force index (primary) on message.id = given.id and message.token = p_token;
        if p_ids is null then
            signal sqlstate 'TQ003' set mysql_errno = 51003,
                message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
        end if;
    end if;
    select json_arrayagg(id) into held from (
        select distinct id from (
            select message.id
            from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = p_token
            for update
        ) as message
    ) as each_one;
    if held is not null then
        insert into tq_emails_history (
            id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
            consumer, headers, errors, payload
        )
        select
            message.id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(p_now as datetime(6)), utc_timestamp(6)), group_key, dedup_key,
            producer, consumer, headers, errors, payload
        from json_table(held, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = p_token
        for update;
        delete tq_emails, tq_emails__live_keys
        from json_table(held, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails force index (primary) on tq_emails.id = given.id and token = p_token
        left join tq_emails__live_keys force index (primary) on tq_emails__live_keys.dedup_key = tq_emails.dedup_key;
    elseif json_length(p_ids) > 0 then
        signal sqlstate 'TQ003' set mysql_errno = 51003,
            message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
    end if;
    if ours then
        commit;
    end if;
    select id from json_table(coalesce(held, '[]'), '$[*]' columns (id bigint path '$')) as done;
end //

-- tq_emails_fail: fail the attempt on message p_id, held under p_token, for consumers.
-- It is tried again after retry_in seconds, or else by the backoff of the queue; after 5 attempts it is a
-- dead letter. Returns its new state: ready, scheduled or dead; or cancelled, if it was told to stop.
-- Options: retry_in, now.
-- Error 51003 if the lease is lost. Locks: the message, until the transaction ends. A crash before the commit leaves
-- the message in progress.
create or replace procedure tq_emails_fail(p_id bigint, p_token varchar(64) character set ascii collate ascii_bin, p_error longtext character set utf8mb4, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare changed bigint;
    declare ended longtext character set ascii;
    declare p_delay double;
    declare p_now datetime(6);
    declare outcome varchar(9) character set ascii default 'lost';
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_options(p_options, '["retry_in", "now"]');
    select retry_in, if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_delay, p_now
    from json_table(p_options, '$' columns (
        retry_in double path '$.retry_in',
        clock json path '$.now'
    )) as options;
    if not p_delay between 0 and 3200000000 then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'retry_in is not from 0 to 100 years. Give another number of seconds.';
    end if;
    set p_error = coalesce(p_error, '');
    if char_length(p_error) > 8000 then
        set p_error = concat(
            left(p_error, 3950), char(10 using utf8mb4), '[... ', char_length(p_error) - 2 * 3950,
            ' characters left out ...]', char(10 using utf8mb4), right(p_error, 3950)
        );
    end if;
    if not ours and @@tx_isolation = 'READ-COMMITTED' then
        select count(*) into changed from tq_emails force index (primary) where id = p_id and token = p_token;
        if changed = 0 then
            signal sqlstate 'TQ003' set mysql_errno = 51003,
                message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
        end if;
    end if;
    if p_delay is null then
        select max(
            least(3600.0, 1.0 * pow(2.0, least(greatest(attempts - 1, 0), 12))) * (1 - 0.1 * rand())
        )
        into p_delay
        from tq_emails where id = p_id and token = p_token;
    end if;
    update json_table(json_array(json_array(p_id,p_delay)), '$[*]' columns (id bigint path '$[0]', delay double path '$[1]')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = p_token
        and cancelled_at is null
    set state = elt(
            last_insert_id(case
                when attempts >= 5 then 3 when delay > 0 then 2 else 1
            end),
            'ready', 'scheduled', 'dead'
        ),
        due_at = case when attempts >= 5 then due_at else coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) + interval delay second end,
        errors = json_array_append(
            case
                when json_length(errors) >= 10 then json_extract(
                    errors,
                    '$[0]', '$[1]', '$[2]', concat('$[', json_length(errors) - 6, ']'),
                    concat('$[', json_length(errors) - 5, ']'), concat('$[', json_length(errors) - 4, ']'),
                    concat('$[', json_length(errors) - 3, ']'), concat('$[', json_length(errors) - 2, ']'),
                    concat('$[', json_length(errors) - 1, ']')
                )
                else coalesce(errors, '[]')
            end,
            '$', json_object(
                'number', cast(coalesce(
                    json_extract(errors, concat('$[', json_length(errors) - 1, '].number')), json_length(errors), 0
                ) as unsigned) + 1,
                'attempt', attempts, 'at', cast(coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) as char), 'consumer', consumer, 'error', p_error
            )
        ),
        token = null,
        lease_until = null;
    set changed = row_count();
    select elt(last_insert_id(), 'ready', 'scheduled', 'dead')
    into outcome;
    if changed = 0 then
        call tq_emails_cancel_held(json_array(p_id), p_token, p_error, p_now, ended);
        if ended is not null then
            set changed = 1, outcome = 'cancelled';
        end if;
    end if;
    if changed = 0 then
        signal sqlstate 'TQ003' set mysql_errno = 51003,
            message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
    end if;
    if ours then
        commit;
    end if;
    select outcome as state;
end //

-- tq_emails_release: release the messages of the JSON array p_ids that are held under p_token, for consumers. Returns
-- their ids. They are ready after a delay, and the attempt does not count; those that were told to stop end. Error
-- 51003 if none of them is held.
-- Options: delay (seconds, else 0), now.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
create or replace procedure tq_emails_release(p_ids longtext character set utf8mb4, p_token varchar(64) character set ascii collate ascii_bin, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare p_delay double;
    declare p_now datetime(6);
    declare held, ended longtext character set ascii;
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_list(p_ids);
    call tq_emails_options(p_options, '["delay", "now"]');
    select coalesce(delay, 0), if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_delay, p_now
    from json_table(p_options, '$' columns (
        delay double path '$.delay',
        clock json path '$.now'
    )) as options;
    if not p_delay between 0 and 3200000000 then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The delay is not from 0 to 100 years. Give another number of seconds.';
    end if;
    if not ours and @@tx_isolation = 'READ-COMMITTED' and json_length(p_ids) > 0 then
        select json_arrayagg(message.id) into p_ids
        from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given
        straight_join tq_emails as message force index (primary) on message.id = given.id and message.token = p_token;
        if p_ids is null then
            signal sqlstate 'TQ003' set mysql_errno = 51003,
                message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
        end if;
    end if;
    select json_arrayagg(id) into held from (
        select distinct id from (
            select message.id
            from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = p_token
            where cancelled_at is null
            for update
        ) as message
    ) as each_one;
    if held is not null then
        update json_table(held, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = p_token
        set state = case when p_delay > 0 then 'scheduled' else 'ready' end,
            due_at = case when p_delay > 0 then coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) + interval p_delay second else due_at end,
            attempts = attempts - 1,
            token = null,
            lease_until = null
        where cancelled_at is null;
    end if;
    call tq_emails_cancel_held(p_ids, p_token, null, p_now, ended);
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

-- tq_emails_extend: the lease on message p_id, held under p_token, ends so many seconds from now; for consumers.
-- Returns that end, in UTC. Error 51003 if the lease is lost.
-- Options: seconds (else 60.0), now.
-- Locks: the message, until the transaction ends.
create or replace procedure tq_emails_extend(p_id bigint, p_token varchar(64) character set ascii collate ascii_bin, p_options longtext character set utf8mb4)
    sql security definer
begin
    declare ours boolean;
    declare p_lease double;
    declare changed bigint;
    declare p_now, lease_end datetime(6);
    declare exit handler for sqlexception
    begin
        call tq_emails_undo(ours);
        resignal;
    end;
    call tq_emails_begin(ours);
    call tq_emails_options(p_options, '["seconds", "now"]');
    select coalesce(seconds, 60.0), if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_lease, p_now
    from json_table(p_options, '$' columns (
        seconds double path '$.seconds',
        clock json path '$.now'
    )) as options;
    if not p_lease between 0 and 3200000000 then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'seconds is not from 0 to 100 years. Give another number.';
    end if;
    if not ours and @@tx_isolation = 'READ-COMMITTED' then
        select count(*) into changed from tq_emails force index (primary) where id = p_id and token = p_token;
        if changed = 0 then
            signal sqlstate 'TQ003' set mysql_errno = 51003,
                message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
        end if;
    end if;
    update json_table(json_array(p_id), '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = p_token
    set lease_until = coalesce(cast(p_now as datetime(6)), utc_timestamp(6)) + interval p_lease second;
    select max(lease_until) into lease_end from (
        select message.id, lease_until
        from json_table(json_array(p_id), '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = p_token
    ) as message;
    if lease_end is null then
        signal sqlstate 'TQ003' set mysql_errno = 51003,
            message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
    end if;
    if ours then
        commit;
    end if;
    select lease_end as lease_until;
end //

-- tq_emails_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers.
-- Options: now. Locks: none.
create or replace procedure tq_emails_stats(p_options longtext character set utf8mb4)
    sql security definer
begin
    declare p_now datetime(6);
    call tq_emails_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    with live (ready, scheduled, in_progress, dead, blocked, oldest_age) as (
        select
            (select count(*) from tq_emails where state = 'ready'),
            (select count(*) from tq_emails where state = 'scheduled'),
            (select count(*) from tq_emails where state = 'in_progress'),
            (select count(*) from tq_emails where state = 'dead'),
            (select count(*) from tq_emails where state = 'blocked'),
            (
                select timestampdiff(microsecond, pushed_at, coalesce(cast(p_now as datetime(6)), utc_timestamp(6))) / 1e6
                from tq_emails force index (tq_emails__state) where state = 'ready' and sweep_at is null order by id limit 1
            )
    ), ended (finished) as (
        select cast(case when counted < 100000 then counted else greatest(counted, coalesce((
            select table_rows from information_schema.tables
            where table_schema = database() and table_name = 'tq_emails_history'
        ), 0)) end as signed)
        from (
            select count(*) as counted from (
                select 1 from tq_emails_history force index (tq_emails__finished) where finished_at is not null limit 100000
            ) as few
        ) as counts
    )
    select * from live cross join ended;
end //

-- tq_emails_peek: the first messages of a state, claiming none; for observers.
-- Options: n (else 10), state (else ready), after (only ids above it).
-- Locks: none.
create or replace procedure tq_emails_peek(p_options longtext character set utf8mb4)
    sql security definer
begin
    declare p_n, p_after bigint;
    declare which longtext character set utf8mb4;
    call tq_emails_options(p_options, '["n", "state", "after"]');
    select coalesce(n, 10), if(json_type(state) = 'STRING', json_unquote(state), 'ready'), coalesce(after, 0)
    into p_n, which, p_after
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        state json path '$.state',
        after bigint path '$.after'
    )) as options;
    -- The state is spelled into each statement, as in those of the verbs.
    case which
        when 'ready' then
            select
                id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
                convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
                lease_until, cast(null as datetime(6)) as finished_at, errors
            from tq_emails force index (tq_emails__state)
            where state = 'ready' and sweep_at is null and id > p_after
            order by id
            limit p_n;
        when 'scheduled' then
            select
                id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
                convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
                lease_until, cast(null as datetime(6)) as finished_at, errors
            from tq_emails force index (tq_emails__state)
            where state = 'scheduled' and id > p_after
            order by id
            limit p_n;
        when 'in_progress' then
            select
                id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
                convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
                lease_until, cast(null as datetime(6)) as finished_at, errors
            from tq_emails force index (tq_emails__state)
            where state = 'in_progress' and id > p_after
            order by id
            limit p_n;
        when 'dead' then
            select
                id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
                convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
                lease_until, cast(null as datetime(6)) as finished_at, errors
            from tq_emails force index (tq_emails__state)
            where state = 'dead' and sweep_at is null and id > p_after
            order by id
            limit p_n;
        when 'blocked' then
            select
                id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
                convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
                lease_until, cast(null as datetime(6)) as finished_at, errors
            from tq_emails force index (tq_emails__state)
            where state = 'blocked' and sweep_at is null and id > p_after
            order by id
            limit p_n;
        else
            signal sqlstate 'TQ001' set mysql_errno = 51001,
                message_text = 'The state is not known. Give ready, scheduled, in_progress, dead or blocked.';
    end case;
end //

-- tq_emails_history: the last finished messages, highest id first; for observers.
-- Options: n (else 10), low and high (only ids between them).
-- Locks: none.
create or replace procedure tq_emails_history(p_options longtext character set utf8mb4)
    sql security definer
begin
    declare p_n, p_low, p_high bigint;
    call tq_emails_options(p_options, '["n", "low", "high"]');
    select coalesce(n, 10), coalesce(low, 0), coalesce(high, 9223372036854775807) into p_n, p_low, p_high
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        low bigint path '$.low',
        high bigint path '$.high'
    )) as options;
    select
        id, payload, headers,
        coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state, attempts,
        priority, convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, producer,
        consumer, pushed_at, due_at, first_popped_at, popped_at, cast(null as datetime(6)) as lease_until, finished_at,
        errors
    from tq_emails_history
    where id between p_low and p_high
    order by id desc
    limit p_n;
end //

delimiter ;
