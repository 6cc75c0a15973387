-- {queue}_fail: fail the attempt on message p_id, held under p_token, for consumers.
-- [at_least_once]
-- It is tried again after retry_in seconds, or else by the backoff of the queue; after {max_attempts} attempts it is a
-- dead letter. Returns its new state: ready, scheduled or dead; or cancelled, if it was told to stop.
-- Options: retry_in, now.
-- [end]
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
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
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
    if p_delay is null then
        select max(
            least({cap}, {base} * pow({factor}, least(greatest(attempts - 1, 0), {steps}))) * (1 - {jitter} * rand())
        )
        into p_delay
        from {queue} where id = p_id and token = p_token;
    end if;
    {sql fail/2 delays=json_array(json_array(p_id,p_delay)) max_attempts=max_attempts};
    set changed = row_count();
    {sql fail_state}
    into outcome;
    if changed = 0 then
        call {queue}_cancel_held(json_array(p_id), p_token, p_error, p_now, ended);
        if ended is not null then
            set changed = 1, outcome = 'cancelled';
        end if;
    end if;
    -- [end]
    -- [at_most_once]
    {sql fail_at_most_once/2 ids=json_array(p_id)};
    set changed = row_count();
    -- [end]
    if changed = 0 then
        signal sqlstate 'TQ003' set mysql_errno = 51003,
            message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
    end if;
    -- [dead_letter_to]
    if outcome = 'dead' then
        {sql move_dead/1 ids=json_array(p_id) origin=origin};
        {sql move_dead/2 ids=json_array(p_id)};
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
