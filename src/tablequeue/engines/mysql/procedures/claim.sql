-- Procedures that claim and take.

-- name: find_in_turn
-- {queue}_find_in_turn: lock up to p_n ready messages, one of each group in turn. Returns their ids as a JSON array, or
-- null. It looks at the first messages of each group, behind the group that was served last, and goes round once.
-- The session remembers the slot of that group in the variable @`tablequeue.{table}.ring`, and in
-- @`tablequeue.{table}.before` what it was before this call. A session begins at a random slot.
{create} procedure {queue}_find_in_turn(
    p_n bigint, p_ours boolean, p_now datetime(6), out p_ids longtext character set ascii
)
begin
    declare others bigint;
    declare passed_over longtext character set ascii;
    declare wide bigint default least(p_n + 8, 64);
    declare seen, lap, at, until_slot, next_slot bigint default 0;
    declare some, looked longtext character set ascii;
    -- [group_limited]
    declare one_slot, given_groups, held longtext character set ascii;
    declare claims_then, room_then bigint;
    declare removing boolean default @`tablequeue.{table}.removes`;
    set given_groups = '[]';
    -- [end]
    set @`tablequeue.{table}.before` = coalesce(
        @`tablequeue.{table}.ring`, cast(conv(left(md5(uuid()), 16), 16, 10) as unsigned) >> 1
    );
    set looked = '[]';
    while lap < 2 do
        set at = if(lap = 0, @`tablequeue.{table}.before`, -1);
        set until_slot = if(lap = 0, 9223372036854775807, @`tablequeue.{table}.before`);
        groups: while seen < p_n + 8 do
            select max(slot) into next_slot from ( -- the subquery of a SET would lock what it reads
                {sql claim_ring starts=at ends=until_slot look=1 high=null}
            ) as message;
            if next_slot is null then
                leave groups;
            end if;
            -- [group_limited]
            set one_slot = concat('[', next_slot, ']');
            select claims, room into claims_then, room_then from (
                {sql claim_rooms slots=one_slot removes=removing}
            ) as room_of_group;
            if room_then <= 0 then
                set at = next_slot;
                iterate groups;
            end if;
            set given_groups = json_array_append(given_groups, '$', json_array(next_slot, claims_then, room_then));
            set wide = least(p_n + 8, 64, room_then);
            -- [end]
            select json_arrayagg(json_array(number, seen, id, slot)) into some from (
                select row_number() over (order by id) as number, id, slot from (
                    {sql claim_ring starts=next_slot-1 ends=next_slot look=wide high=null}
                ) as message
            ) as numbered;
            set looked = json_merge_preserve(looked, some), at = next_slot, seen = seen + 1;
        end while;
        set lap = lap + 1;
    end while;
    -- [group_limited]
    select json_arrayagg(slot) into held from (
        {sql lock_stripes by_group=given_groups}
    ) as stripe;
    set held = coalesce(held, '[]');
    select coalesce(json_arrayagg(json_array(number, place, message.id, message.slot)), '[]') into looked
    from json_table(looked, '$[*]' columns (
        number bigint path '$[0]', place bigint path '$[1]', id bigint path '$[2]', slot bigint path '$[3]'
    )) as message
    join json_table(held, '$[*]' columns (slot bigint path '$')) as stripe on stripe.slot = message.slot;
    {sql note_stripes slots=held};
    -- [end]
    select json_arrayagg(id) into some from (
        select id from json_table(looked, '$[*]' columns (
            number bigint path '$[0]', place bigint path '$[1]', id bigint path '$[2]'
        )) as message
        order by number, place
        limit 1000000
    ) as sorted;
    select json_arrayagg(id) into p_ids from (
        {sql claim_find.read ids=some lease=null}
    ) as ready;
    {none_of_others}
    set @`tablequeue.{table}.ring` = coalesce((
        select message.slot
        from json_table(looked, '$[*]' columns (
            number bigint path '$[0]', place bigint path '$[1]', id bigint path '$[2]', slot bigint path '$[3]'
        )) as message
        join json_table(coalesce(p_ids, '[]'), '$[*]' columns (id bigint path '$')) as chosen on chosen.id = message.id
        order by message.number desc, message.place desc
        limit 1
    ), @`tablequeue.{table}.before`);
end //

-- name: find
-- {queue}_find: lock up to p_n ready messages, for {queue}_pop and {queue}_take. Returns their ids in the order of the
-- queue, as a JSON array, or null. A session sweeps once a second before it looks. If too few messages were ready, it
-- sweeps after that too, and looks again.
-- JSON_ARRAYAGG aggregates the rows of a derived table with a limit in their order, which only MariaDB can ask it for.
-- In a transaction of the caller's, not p_ours, it finds what that sees: see `claim_find`. If others have claimed some
-- of that since, it has locked messages of others, and is refused with SQLSTATE 40001.
{create} procedure {queue}_find(
    p_n bigint, p_ours boolean, p_now datetime(6), out p_ids longtext character set ascii
)
begin
    declare most bigint default if(p_ours, 1000, least(p_n, 1000));
    declare wide, seen, locked, moved, others bigint;
    declare some, passed_over longtext character set ascii;
    declare swept boolean;
    call {queue}_sweep(1, most, p_now, moved);
    set swept = moved is not null;
    turns: loop
        -- [in_order]
        set wide = 2 * p_n + 32; -- more than are wanted: others may have the first ones
        repeat
            select json_arrayagg(id), count(*) into some, seen from (
                {sql claim_find.find look=wide low_water=0}
            ) as ready;
            select json_arrayagg(id), count(*) into p_ids, locked from (
                {sql claim_find.read ids=some lease=null}
            ) as ready;
            {none_of_others}
            set wide = wide * 8; -- what was locked is found and locked again, and counts
        until locked = p_n or seen < wide / 8 end repeat;
        -- [fair]
        call {queue}_find_in_turn(p_n, p_ours, p_now, p_ids);
        set locked = coalesce(json_length(p_ids), 0);
        -- [end]
        if locked = p_n or swept then
            leave turns;
        end if;
        set swept = true;
        call {queue}_sweep(0, most, p_now, moved);
        if moved = 0 then
            leave turns;
        end if;
    end loop;
end //

-- name: pop
-- {queue}_pop: claim ready messages, for consumers; in the order of the queue, each with the token that finishes it.
-- [at_least_once]
-- Options: n (up to how many, else 1), consumer (else the login), lease (seconds, else {lease}), now. A consumer that
-- does not finish a message by the end of the lease has lost it.
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
    -- [concurrency]
    declare there, got, p_places longtext character set ascii;
    declare moved bigint;
    -- [group_rate]
    declare p_groups longtext character set ascii;
    -- [end]
    {all_or_nothing}
    -- [at_least_once]
    call {queue}_options(p_options, '["n", "consumer", "lease", "now"]');
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
    -- [rate]
    select granted.tokens, granted.clock into tokens, granted_at from (
        {sql grant_rate}
    ) as granted;
    set p_n = least(p_n, tokens);
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
    -- [group_limited]
    set @`tablequeue.{table}.removes` = false;
    -- [end]
    call {queue}_find(p_n, ours, p_now, p_ids);
    -- [not rate]
    set p_popped_at = {now}, p_lease_until = p_popped_at + interval p_lease second;
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
        {sql claim_find.read now=p_popped_at}
    )
    -- [in_order]
    select *, p_token as token from message
    -- [fair]
    select
        {claimed_names}, p_token as token
    from message
    -- [end]
    {claimed_order}
    if p_ids is not null then
        -- [group_rate]
        {by_group}
        {sql spend_group_rates by_group=p_groups now=p_popped_at};
        -- [at_least_once]
        {sql claim_many.change};
        -- [at_most_once]
        {sql take.change};
        -- [concurrency]
        select json_arrayagg(json_object('slot', place.slot, 'message', message.id)) into p_places
        from json_table(got, '$[*]' columns (number for ordinality, slot int path '$')) as place
        join json_table(p_ids, '$[*]' columns (number for ordinality, id bigint path '$')) as message
            on message.number = place.number;
        {sql note_slots places=p_places};
        -- [rate]
        set tokens = json_length(p_ids);
        {sql spend_rate number=tokens now=granted_at};
        -- [end]
    end if;
    if ours then
        commit;
    end if;
end //

-- name: take
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
    -- [group_rate]
    declare p_groups longtext character set ascii;
    -- [end]
    {all_or_nothing}
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
    -- [group_limited]
    set @`tablequeue.{table}.removes` = true;
    -- [end]
    call {queue}_find(p_n, ours, p_now, p_ids);
    -- [not rate]
    set p_popped_at = {now};
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
        {sql claim_find.read lease=null now=p_popped_at}
    )
    -- [in_order]
    select * from message
    -- [fair]
    select
        {claimed_names}
    from message
    -- [end]
    {claimed_order}
    if p_ids is not null then
        -- [group_rate]
        {by_group}
        {sql spend_group_rates by_group=p_groups now=p_popped_at};
        -- [end]
        {sql take.change token=null};
        -- [rate]
        set tokens = json_length(p_ids);
        {sql spend_rate number=tokens now=granted_at};
        -- [end]
    end if;
    if ours then
        commit;
    end if;
end //

-- name: wait
-- {queue}_wait: return when a pop may find a message, or after some seconds. For a consumer with an empty queue: call
-- it, and then pop. It begins with a pause, so a queue that is at a limit costs no more than an empty one.
-- Options: seconds (else 20). Each look is a transaction, and the pauses, of a quarter of a second, are in none. In a
-- transaction of the caller's, whose snapshot they would hold, it is refused.
-- It sweeps as pop does: once a second for each session.
{create} procedure {queue}_wait(p_options {text})
    sql security definer
begin
    declare ours, ready boolean default false;
    declare p_now, ends datetime(6);
    declare p_low_water, moved bigint default 0;
    declare p_seconds double;
    {all_or_nothing}
    call {queue}_options(p_options, '["seconds"]');
    set p_seconds = coalesce(json_extract(p_options, '$.seconds'), 20);
    if not p_seconds between 0 and {longest} then
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
        call {queue}_begin(ours);
        call {queue}_sweep(1, 1000, p_now, moved);
        select count(*) into ready from ( -- the subquery of a SET would wait for those who have locked messages
            select 1 from {queue} force index ({claim_index}) where {claimable} limit 1
        ) as message;
        commit;
    end while;
end //
