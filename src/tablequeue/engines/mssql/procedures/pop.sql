-- {queue}_pop: claim up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue, each with
-- the token that finishes it. The lease is of @p_lease seconds (else {lease}); at most once there is none.
-- Locks: the messages, until the transaction ends; those that another one has are passed over.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_pop
    @p_n bigint = 1,
    @p_consumer nvarchar(512) = null,
    @p_lease float = null,
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        -- [at_least_once]
        set @p_lease = coalesce(@p_lease, {lease});
        if @p_lease not between 0 and {longest}
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        -- [end]
        -- [at_most_once]
        if @p_lease is not null throw 51001, N'A message delivered at most once has no lease. Leave it out.', 1;
        -- [end]
        declare @swept bit = 0, @turn int = 0, @moved bigint, @token uniqueidentifier = newid();
        declare @claimed table (
            id bigint, payload {payload_type}, headers nvarchar(max), attempts int, pushed_at datetime2(6),
            popped_at datetime2(6), lease_until datetime2(6), priority int, group_key nvarchar(510),
            dedup_key nvarchar(510), due_at datetime2(6)
        );
        exec @moved = {queue}_sweep 1000, @p_now;
        if @moved >= 0 set @swept = 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        while @turn < 2
        begin
            insert into @claimed exec {queue}_claim @p_n, @token, @p_consumer, @p_lease, @p_now;
            set @p_n = @p_n - @@rowcount;
            if @p_n <= 0 or @swept = 1 break;
            set @swept = 1;
            exec @moved = {queue}_sweep 0, @p_now;
            if @moved = 0 break;
            set @turn = @turn + 1;
        end;
        select
            id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key, due_at,
            @token as token
        from @claimed
        order by {order_by};
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
