-- {queue}_take: remove up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue. They
-- are finished when the transaction commits.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_take
    @p_n bigint = 1,
    @p_consumer nvarchar(max) = null,
    @p_now datetime2(6) = null
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        if datalength(@p_consumer) > 1024
            throw 51001, N'The name of the consumer is longer than 512 characters. Give a shorter one.', 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        declare @most bigint = case @alone when 1 then 1000 else @p_n end;
        declare @swept bit = 0;
        declare @turn int = 0;
        -- [fair]
        declare @p_served bigint =
            coalesce(cast(session_context({ring_of_session}) as bigint), cast(crypt_gen_random(8) as bigint));
        declare @p_last bigint;
        -- [end]
        declare @moved int;
        -- [keep]
        declare @claimed table (
            {history_types}
        );
        -- [end]
        -- [none]
        declare @claimed table (
            {claimed_types}
        );
        -- [end]
        exec @moved = {queue}__sweep 1000, @most, @p_now;
        if @moved >= 0 set @swept = 1;
        -- [rate]
        declare @granted bigint;
        declare @granted_at datetime2(6);
        exec @granted = {queue}__grant_rate @p_now, @granted_at output;
        set @p_n = case when @p_n < @granted then @p_n else @granted end;
        set @p_now = @granted_at;
        -- [end]
        -- [rate]
        if @p_n = 0 set @turn = 2;
        -- [end]
        while @turn < 2
        begin
            -- [keep]
            {sql take_keep token=null into=@claimed};
            -- [end]
            -- [none]
            {sql take_none into=@claimed};
            -- [end]
            set @p_n = @p_n - @@rowcount;
            -- [fair]
            -- The last one in turn: of the groups that were served most often, the one farthest round the ring.
            set @p_last = null;
            select top (1) @p_last = given.slot
            from (
                select id, {slot_of_text} as slot, row_number() over (partition by group_key order by id) as number
                from @claimed
            ) as given
            order by given.number desc, case when given.slot > @p_served then 0 else 1 end desc, given.slot desc;
            set @p_served = coalesce(@p_last, @p_served);
            exec sp_set_session_context {ring_of_session}, @p_served;
            -- [end]
            -- [group_rate]
            if exists (select 1 from @claimed) break; -- what it has spent is not noted yet
            -- [end]
            if @p_n <= 0 or @swept = 1 break;
            set @swept = 1;
            set @most = case @alone when 1 then 1000 else @p_n end;
            exec @moved = {queue}__sweep 0, @most, @p_now;
            if @moved = 0 break;
            set @turn = @turn + 1;
        end;
        -- [group_rate]
        declare @spending nvarchar(max) = (
            select given.slot, count(*) as number
            from (select {slot_of_text} as slot from @claimed) as given
            group by given.slot
            for json path
        );
        if @spending is not null exec {queue}__spend_group_rates @spending, @p_now;
        -- [end]
        -- [rate]
        set @granted = (select count(*) from @claimed);
        if @granted > 0 exec {queue}__spend_rate @granted, @p_now;
        -- [end]
        -- [grouped]
        insert into {turns} (group_key)
        select convert(varbinary(1020), group_key)
        from @claimed
        group by convert(varbinary(1020), group_key)
        order by min(id);
        -- [end]
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
        -- [end]
        -- [none]
        select
            {claimed_names}
        from @claimed
        order by {order_by};
        -- [end]
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
