-- Procedures that finish and cancel messages.

-- name: cancel_held
-- {queue}_cancel_held: the messages of the JSON array p_ids that are held under p_token, and were told to stop, end. If
-- p_token is null, those whose lease has expired. p_error is kept, if it is not null. p_ended are their ids, or null.
-- For {queue}_fail, {queue}_release and {queue}_sweep.
{create} procedure {queue}_cancel_held(
    p_ids longtext character set ascii, p_token {token}, p_error {text}, p_now datetime(6),
    out p_ended longtext character set ascii
)
begin
    select json_arrayagg(id) into p_ended from (
        select distinct id from (
            {sql cancel_held.lock}
        ) as message
    ) as each_one;
    if p_ended is not null then
        {sql cancel_held.change ids=p_ended};
    end if;
end //

-- name: cancel
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
    {all_or_nothing}
    call {queue}_list(p_ids);
    call {queue}_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    select json_arrayagg(id), json_arrayagg(if(told, 0, id)) into there, gone from (
        select distinct id, told from (
            {sql cancel.lock}
        ) as message
    ) as each_one;
    if there is not null then
        {sql cancel.change ids=there};
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

-- name: complete
-- {queue}_complete: complete the messages of the JSON array p_ids that p_token holds, for consumers; returns their ids.
-- Error 51003 if it holds none of them: an error undoes the call, so it cannot be raised for some of them.
-- [grouped]
-- Then the next messages of their groups become ready; not in a transaction of the caller's, where the next pop that
-- finds too little sees to it.
-- [not results]
-- Options: now.
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
    {all_or_nothing}
    call {queue}_list(p_ids);
    -- [not results]
    call {queue}_options(p_options, '["now"]');
    -- [results]
    call {queue}_options(p_options, '["now", "result"]');
    -- [end]
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    -- [at_least_once]
    {held_by_now}
    -- [end]
    select json_arrayagg(id) into held from (
        select distinct id from (
            -- [at_most_once]
            {sql complete_at_most_once.lock}
            -- [at_least_once]
            {sql complete.lock}
            -- [end]
        ) as message
    ) as each_one;
    if held is not null then
        -- [at_most_once]
        {sql complete_at_most_once.change ids=held};
        -- [at_least_once]
        {sql complete.change ids=held};
        -- [results]
        insert into {results} (id, result)
        select done.id, json_extract(p_options, '$.result')
        from json_table(held, '$[*]' columns (id bigint path '$')) as done
        where json_type(json_extract(p_options, '$.result')) <> 'NULL';
        -- [end]
    elseif json_length(p_ids) > 0 then
        {lease_lost}
    end if;
    if ours then
        commit;
        -- [grouped]
        call {queue}_move_on(p_now);
        -- [end]
    end if;
    select id from json_table(coalesce(held, '[]'), '$[*]' columns (id bigint path '$')) as done;
end //

-- name: fail
-- {queue}_fail: fail the attempt on message p_id, held under p_token, for consumers.
-- [at_least_once]
-- It is tried again after retry_in seconds, or else by the backoff of the queue; after {max_attempts} attempts it is a
-- dead letter. Returns its new state: ready, scheduled or dead; or cancelled, if it was told to stop.
-- Options: retry_in, now.
-- [at_most_once]
-- It stays lost, with the error. Returns 'lost'.
-- Options: now.
-- [end]
-- Error 51003 if the lease is lost. Locks: the message, until the transaction ends. A crash before the commit leaves
-- the message in progress.
{create} procedure {queue}_fail(p_id bigint, p_token {token}, p_error {text}, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare changed bigint;
    -- [at_least_once]
    declare ended longtext character set ascii;
    -- [end]
    declare p_delay double;
    declare p_now datetime(6);
    declare outcome varchar(9) character set ascii default 'lost';
    {all_or_nothing}
    call {queue}_options(p_options, '["retry_in", "now"]');
    select retry_in, if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_delay, p_now
    from json_table(p_options, '$' columns (
        retry_in double path '$.retry_in',
        clock json path '$.now'
    )) as options;
    if not p_delay between 0 and {longest} then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'retry_in is not from 0 to 100 years. Give another number of seconds.';
    end if;
    set p_error = coalesce(p_error, '');
    if char_length(p_error) > {longest_error} then
        set p_error = concat(
            left(p_error, {error_ends}), char(10 using utf8mb4), '[... ', char_length(p_error) - 2 * {error_ends},
            ' characters left out ...]', char(10 using utf8mb4), right(p_error, {error_ends})
        );
    end if;
    -- [at_least_once]
    {this_held_by_now}
    if p_delay is null then
        select max(
            least({cap}, {base} * pow({factor}, least(greatest(attempts - 1, 0), {steps}))) * (1 - {jitter} * rand())
        )
        into p_delay
        from {queue} where id = p_id and token = p_token;
    end if;
    {sql fail.change delays=json_array(json_array(p_id,p_delay)) max_attempts=max_attempts};
    set changed = row_count();
    {sql fail_state}
    into outcome;
    if changed = 0 then
        call {queue}_cancel_held(json_array(p_id), p_token, p_error, p_now, ended);
        if ended is not null then
            set changed = 1, outcome = 'cancelled';
        end if;
    end if;
    -- [at_most_once]
    {sql fail_at_most_once.change ids=json_array(p_id)};
    set changed = row_count();
    -- [end]
    if changed = 0 then
        {lease_lost}
    end if;
    -- [dead_letter_to]
    if outcome = 'dead' then
        {sql move_dead ids=json_array(p_id) origin=origin};
    end if;
    -- [end]
    if ours then
        commit;
        -- [grouped]
        if outcome in ('dead', 'cancelled', 'blocked') then
            call {queue}_move_on(p_now);
        end if;
        -- [end]
    end if;
    select outcome as state;
end //

-- name: release
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
    {all_or_nothing}
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
    {held_by_now}
    select json_arrayagg(id) into held from (
        select distinct id from (
            {sql release.lock}
        ) as message
    ) as each_one;
    if held is not null then
        {sql release.change ids=held};
    end if;
    call {queue}_cancel_held(p_ids, p_token, null, p_now, ended);
    if held is null and ended is not null then
        set held = ended;
    elseif ended is not null then
        set held = json_merge_preserve(held, ended);
    elseif held is null and json_length(p_ids) > 0 then
        {lease_lost}
    end if;
    if ours then
        commit;
    end if;
    select id from json_table(coalesce(held, '[]'), '$[*]' columns (id bigint path '$')) as done;
end //

-- name: extend
-- {queue}_extend: the lease on message p_id, held under p_token, ends so many seconds from now; for consumers.
-- Returns that end, in UTC. Error 51003 if the lease is lost.
-- Options: seconds (else {lease}), now.
-- Locks: the message, until the transaction ends.
{create} procedure {queue}_extend(p_id bigint, p_token {token}, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_lease double;
    declare changed bigint;
    declare p_now, lease_end datetime(6);
    {all_or_nothing}
    call {queue}_options(p_options, '["seconds", "now"]');
    select coalesce(seconds, {lease}), if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_lease, p_now
    from json_table(p_options, '$' columns (
        seconds double path '$.seconds',
        clock json path '$.now'
    )) as options;
    if not p_lease between 0 and {longest} then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'seconds is not from 0 to 100 years. Give another number.';
    end if;
    {this_held_by_now}
    {sql extend.change ids=json_array(p_id)};
    select max(lease_until) into lease_end from (
        {sql extend.read ids=json_array(p_id)}
    ) as message;
    if lease_end is null then
        {lease_lost}
    end if;
    if ours then
        commit;
    end if;
    select lease_end as lease_until;
end //
