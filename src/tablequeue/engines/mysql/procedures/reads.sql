-- Procedures that read.

-- name: history
-- {queue}_history: the last finished messages, highest id first; for observers.
-- Options: n (else 10), low and high (only ids between them).
-- Locks: none.
{create} procedure {queue}_history(p_options {text})
    sql security definer
begin
    declare p_n, p_low, p_high bigint;
    call {queue}_options(p_options, '["n", "low", "high"]');
    select coalesce(n, 10), coalesce(low, 0), coalesce(high, 9223372036854775807) into p_n, p_low, p_high
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        low bigint path '$.low',
        high bigint path '$.high'
    )) as options;
    {sql history};
end //

-- name: list
-- {queue}_list: refuse a value that is not a JSON array. For the other procedures.
{create} procedure {queue}_list(p_list {text})
begin
    if p_list is null or not json_valid(p_list) or left(ltrim(p_list), 1) <> '[' then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The list is no JSON array. Write it as in [1, 2].';
    end if;
end //

-- name: stats
-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers.
-- Options: now. Locks: none.
{create} procedure {queue}_stats(p_options {text})
    sql security definer
begin
    declare p_now datetime(6);
    call {queue}_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    with live (ready, scheduled, in_progress, dead, blocked, oldest_age) as (
        {sql stats}
    ), ended (finished) as (
        -- [keep]
        {sql stats_history}
        -- [none]
        select cast(null as signed)
        -- [end]
    )
    select * from live cross join ended;
end //

-- name: peek
-- {queue}_peek: the first messages of a state, claiming none; for observers.
-- Options: n (else 10), state (else ready), after (only ids above it).
-- Locks: none.
{create} procedure {queue}_peek(p_options {text})
    sql security definer
begin
    declare p_n, p_after bigint;
    declare which {text};
    call {queue}_options(p_options, '["n", "state", "after"]');
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
            {sql peek state=ready};
        when 'scheduled' then
            {sql peek state=scheduled};
        when 'in_progress' then
            {sql peek state=in_progress};
        when 'dead' then
            {sql peek state=dead};
        when 'blocked' then
            {sql peek state=blocked};
        else
            signal sqlstate 'TQ001' set mysql_errno = 51001,
                message_text = 'The state is not known. Give ready, scheduled, in_progress, dead or blocked.';
    end case;
end //

-- name: lost
-- {queue}_lost: the first messages that were claimed at most once, some time ago, and not acknowledged; for observers.
-- Options: n (else 10), age (seconds, else {lease}), now.
-- Locks: none.
{create} procedure {queue}_lost(p_options {text})
    sql security definer
begin
    declare p_n bigint;
    declare p_age double;
    declare p_now datetime(6);
    call {queue}_options(p_options, '["n", "age", "now"]');
    select coalesce(n, 10), coalesce(age, {lease}), if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_n, p_age, p_now
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        age double path '$.age',
        clock json path '$.now'
    )) as options;
    {sql lost after=0};
end //
