-- Procedures that claim and take.

-- name: _grant_rate
-- {queue}__grant_rate: return how many messages the rate allows now, and the time of that now. For pop and take.
-- It waits for other claims. Locks: the row of the rate, until the transaction ends.
create or alter procedure {queue}__grant_rate
    @p_now datetime2(6),
    @p_clock datetime2(6) output
as
begin
    set xact_abort, nocount on;
    declare @granted table (tokens bigint not null, clock varchar(33) not null);
    {sql grant_rate into=@granted};
    declare @tokens bigint;
    select @tokens = tokens, @p_clock = convert(datetime2(6), clock, 126) from @granted;
    return case when @tokens < 0 then 0 else @tokens end;
end;

-- name: _lock_slots
-- {queue}__lock_slots: lock up to @p_n free places. Returns how many, and the places as a JSON array. For pop.
-- Locks: the places, until the transaction ends; locked ones are skipped.
create or alter procedure {queue}__lock_slots
    @p_n bigint,
    @p_slots nvarchar(max) output
as
begin
    set xact_abort, nocount on;
    declare @slots table (slot bigint not null);
    {sql lock_slots into=@slots};
    set @p_slots = (select slot from @slots for json path);
    return (select count(*) from @slots);
end;

-- name: _note_slots
-- {queue}__note_slots: note in the places of @p_slots the messages of @p_ids, claimed under @p_token. For pop.
create or alter procedure {queue}__note_slots
    @p_slots nvarchar(max),
    @p_ids nvarchar(max),
    @p_token uniqueidentifier
as
begin
    set xact_abort, nocount on;
    declare @p_places nvarchar(max) = (
        select json_value(place.value, '$.slot') as slot, json_value(message.value, '$.id') as message
        from openjson(@p_slots) as place
        join openjson(@p_ids) as message on message.[key] = place.[key]
        for json path
    );
    {sql note_slots};
end;

-- name: _spend_group_rates
-- {queue}__spend_group_rates: spend the rates of the groups of a JSON array, each with the number of its messages that
-- the transaction has claimed. For pop and take.
create or alter procedure {queue}__spend_group_rates
    @p_by_group nvarchar(max),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql spend_group_rates};
end;

-- name: _spend_rate
-- {queue}__spend_rate: spend the rate of @p_number messages, which the transaction has claimed. For pop and take.
create or alter procedure {queue}__spend_rate
    @p_number bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql spend_rate};
end;

-- name: pop
-- {queue}_pop: claim up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue, each with
-- the token that finishes it. The lease is of @p_lease seconds (else {lease}); at most once there is none.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
create or alter procedure {queue}_pop
    @p_n bigint = 1,
    @p_consumer nvarchar(max) = null,
    @p_lease float = null,
    @p_now datetime2(6) = null
as
begin
    {begun}
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        -- [at_least_once]
        set @p_lease = coalesce(@p_lease, {lease});
        if @p_lease not between 0 and {longest}
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        -- [at_most_once]
        if @p_lease is not null throw 51001, N'A message delivered at most once has no lease. Leave it out.', 1;
        -- [end]
        if datalength(@p_consumer) > 1024
            throw 51001, N'The name of the consumer is longer than 512 characters. Give a shorter one.', 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        declare @p_token uniqueidentifier = newid();
        {first_turn}
        -- [at_least_once]
        declare @claimed table (
            {claimed_types}
        );
        -- [at_most_once]
        declare @claimed table (
            {history_types}
        );
        -- [end]
        {granted}
        -- [concurrency]
        declare @slots nvarchar(max);
        exec @p_n = {queue}__lock_slots @p_n, @slots output;
        -- [limited]
        if @p_n = 0 set @turn = 2;
        -- [end]
        while @turn < 2
        begin
            -- [at_least_once]
            {sql claim into=@claimed};
            -- [at_most_once]
            {sql take into=@claimed};
            -- [end]
            {next_turn}
        end;
        -- [concurrency]
        declare @ids nvarchar(max) = (select id from @claimed for json path);
        exec {queue}__note_slots @slots, @ids, @p_token;
        -- [end]
        {spent_by_groups}
        -- [at_most_once]
        insert into {history} (
            {history_row}
        )
        select
            {history_row}
        from @claimed;
        select
            {claimed_names with lease_until = cast(null as datetime2(6)) as lease_until},
            @p_token as token
        from @claimed
        order by {order_by};
        -- [at_least_once]
        select
            {claimed_names},
            @p_token as token
        from @claimed
        order by {order_by};
        -- [end]
        commit transaction;
    {ended}
end;

-- name: take
-- {queue}_take: remove up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue. They
-- are finished when the transaction commits.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
create or alter procedure {queue}_take
    @p_n bigint = 1,
    @p_consumer nvarchar(max) = null,
    @p_now datetime2(6) = null
as
begin
    {begun}
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        if datalength(@p_consumer) > 1024
            throw 51001, N'The name of the consumer is longer than 512 characters. Give a shorter one.', 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        {first_turn}
        -- [keep]
        declare @claimed table (
            {history_types}
        );
        -- [none]
        declare @claimed table (
            {claimed_types}
        );
        -- [end]
        {granted}
        -- [rate]
        if @p_n = 0 set @turn = 2;
        -- [end]
        while @turn < 2
        begin
            {sql take token=null into=@claimed};
            {next_turn}
        end;
        {spent_by_groups}
        -- [grouped]
        insert into {turns} (group_key)
        select convert(varbinary(1020), group_key)
        from @claimed
        group by convert(varbinary(1020), group_key)
        order by min(id);
        -- [keep]
        insert into {history} (
            {history_row}
        )
        select
            {history_row}
        from @claimed;
        select
            {claimed_names with lease_until = cast(null as datetime2(6)) as lease_until}
        from @claimed
        order by {order_by};
        -- [none]
        select
            {claimed_names}
        from @claimed
        order by {order_by};
        -- [end]
        commit transaction;
    {ended}
end;
