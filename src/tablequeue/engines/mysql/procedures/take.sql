-- {queue}_take: remove ready messages, for consumers; in the order of the queue. They are finished when the transaction
-- commits.
-- Options: n (up to how many, else 1), consumer (else the login), now.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too. Without a transaction of the caller's they are gone.
{create} procedure {queue}_take(p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_n bigint;
    declare p_consumer {text};
    declare p_now, p_popped_at datetime(6);
    declare p_ids longtext character set ascii;
    -- [rate]
    declare tokens bigint;
    declare granted_at datetime(6);
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
    call {queue}_options(p_options, '["n", "consumer", "now"]');
    select
        coalesce(n, 1), if(json_type(consumer) = 'STRING', json_unquote(consumer), user()),
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_n, p_consumer, p_now
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        consumer json path '$.consumer',
        clock json path '$.now'
    )) as options;
    if not p_n between 1 and {largest} then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'n is not from 1 to {largest}. Give another number.';
    end if;
    -- [rate]
    select granted.tokens, granted.clock into tokens, granted_at from (
        {sql grant_rate}
    ) as granted;
    set p_n = least(p_n, tokens);
    -- [end]
    -- [group_limited]
    set @`tablequeue.{table}.removes` = true;
    -- [end]
    call {queue}_find(p_n, ours, p_now, p_ids);
    -- [not rate]
    set p_popped_at = {now};
    -- [end]
    -- [rate]
    set p_popped_at = granted_at;
    -- [end]
    -- The rows are returned before the change, which may delete them. If the change fails, an error follows the rows,
    -- and all is rolled back. So a client must read to the end.
    with message (
        {claimed_names}
        -- [fair]
        , slot
        -- [end]
    ) as (
        {sql claim_find/2 lease=null now=p_popped_at}
    )
    -- [in_order]
    select * from message
    -- [end]
    -- [fair]
    select
        {claimed_names}
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
        -- [keep]
        {sql take_keep/2 token=null};
        {sql take_keep/3};
        -- [end]
        -- [none]
        {sql take_none/2};
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
