-- {queue}_pop: claim ready messages, for consumers; in the order of the queue, each with the token that finishes it.
-- [at_least_once]
-- Options: n (up to how many, else 1), consumer (else the login), lease (seconds, else {lease}), now. A consumer that
-- does not finish a message by the end of the lease has lost it.
-- [end]
-- [at_most_once]
-- They are in the history already, and are never delivered again; complete finishes them.
-- Options: n (up to how many, else 1), consumer (else the login), now.
-- [end]
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
{create} procedure {queue}_pop(p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_n bigint;
    declare p_consumer {text};
    declare p_lease double;
    declare p_now, p_popped_at, p_lease_until datetime(6);
    declare p_token char(32) character set ascii default replace(uuid(), '-', '');
    declare p_ids longtext character set ascii;
    -- [rate]
    declare tokens bigint;
    declare granted_at datetime(6);
    -- [end]
    -- [concurrency]
    declare there, got, p_places longtext character set ascii;
    declare moved bigint;
    -- [end]
    -- [group_rate]
    declare p_groups longtext character set ascii;
    -- [end]
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    -- [at_least_once]
    call {queue}_options(p_options, '["n", "consumer", "lease", "now"]');
    -- [end]
    -- [at_most_once]
    call {queue}_options(p_options, '["n", "consumer", "now"]');
    -- [end]
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
    if not p_n between 1 and {largest} then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'n is not from 1 to {largest}. Give another number.';
    end if;
    -- [at_least_once]
    set p_lease = coalesce(p_lease, {lease});
    if not p_lease between 0 and {longest} then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The lease is not from 0 to 100 years. Give another number of seconds.';
    end if;
    -- [end]
    -- [rate]
    select granted.tokens, granted.clock into tokens, granted_at from (
        {sql grant_rate}
    ) as granted;
    set p_n = least(p_n, tokens);
    -- [end]
    -- [concurrency]
    -- First, because an expired lease frees its place.
    call {queue}_sweep(1, if(ours, 1000, least(p_n, 1000)), p_now, moved);
    select json_arrayagg(json_array(slot, message, token)) into there from (
        {sql free_slots look=10000}
    ) as place;
    select json_arrayagg(slot) into got from (
        {sql lock_slots slots=there}
    ) as place;
    set p_n = coalesce(json_length(got), 0);
    -- [end]
    -- [group_limited]
    set @`tablequeue.{table}.removes` = false;
    -- [end]
    call {queue}_find(p_n, ours, p_now, p_ids);
    -- [not rate]
    set p_popped_at = {now}, p_lease_until = p_popped_at + interval p_lease second;
    -- [end]
    -- [rate]
    set p_popped_at = granted_at, p_lease_until = p_popped_at + interval p_lease second;
    -- [end]
    -- The rows are returned before the change, because a take deletes them. If the change fails, an error follows the
    -- rows, and all is rolled back. So a client must read to the end.
    with message (
        {claimed_names}
        -- [fair]
        , slot
        -- [end]
    ) as (
        {sql claim_find/2 now=p_popped_at}
    )
    -- [in_order]
    select *, p_token as token from message
    -- [end]
    -- [fair]
    select
        {claimed_names}, p_token as token
    from message
    -- [end]
    -- [priority]
    order by priority desc, id;
    -- [end]
    -- [fair]
    order by row_number() over (partition by slot order by id), slot <= @`tablequeue.{table}.before`, slot;
    -- [end]
    -- [by_id_or_due]
    order by {order_by};
    -- [end]
    if p_ids is not null then
        -- [group_rate]
        select json_arrayagg(json_object('slot', slot, 'number', number)) into p_groups from (
            select message.slot, count(*) as number
            from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given
            straight_join {queue} as message force index (primary) on message.id = given.id
            group by message.slot
        ) as spending;
        {sql spend_group_rates by_group=p_groups now=p_popped_at};
        -- [end]
        -- [at_least_once]
        {sql claim_many/2};
        -- [end]
        -- [at_most_once]
        {sql take_keep/2};
        {sql take_keep/3};
        -- [end]
        -- [concurrency]
        select json_arrayagg(json_object('slot', place.slot, 'message', message.id)) into p_places
        from json_table(got, '$[*]' columns (number for ordinality, slot int path '$')) as place
        join json_table(p_ids, '$[*]' columns (number for ordinality, id bigint path '$')) as message
            on message.number = place.number;
        {sql note_slots places=p_places};
        -- [end]
        -- [rate]
        set tokens = json_length(p_ids);
        {sql spend_rate number=tokens now=granted_at};
        -- [end]
    end if;
    if ours then
        commit;
    end if;
end //
