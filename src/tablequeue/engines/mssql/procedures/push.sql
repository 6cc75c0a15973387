-- {queue}_push: push one message, for producers; its id. If a message has its key already: error 51002, or with
-- @p_on_conflict 'skip' null, or with 'return' the id of that message. Two that push a key at the same moment: one of
-- them may get error 2601 instead, and is to be tried again.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_push
    @p_payload {payload_type},
    @p_headers nvarchar(max) = null,
    @p_delay float = null,
    @p_due datetime2(6) = null,
    @p_priority int = null,
    @p_group nvarchar(510) = null,
    @p_key nvarchar(510) = null,
    @p_on_conflict varchar(6) = 'raise',
    @p_producer nvarchar(512) = null,
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        if @p_delay is not null and @p_due is not null
            throw 51001, N'Both delay and due are given. Give one of them.', 1;
        if @p_delay not between 0 and {longest}
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        -- [not priority]
        if @p_priority is not null
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        -- [end]
        -- [groups]
        if @p_group is null or @p_group = N'' or len(@p_group) > 255
            throw 51001, N'The queue has groups. Give the message its group, of 1 to 255 characters.', 1;
        -- [end]
        -- [not groups]
        if @p_group is not null throw 51001, N'The queue has no groups. Leave the group out.', 1;
        -- [end]
        set @p_priority = coalesce(@p_priority, 0);
        set @p_producer = coalesce(@p_producer, original_login());
        -- [due]
        if @p_due is null set @p_delay = coalesce(@p_delay, 0);
        -- [end]
        -- [strict]
        set @p_group = N'';
        -- [end]
        if @p_key = N'' or len(@p_key) > 255
            throw 51001, N'The key is not of 1 to 255 characters. Give another one.', 1;
        if @p_on_conflict is null or @p_on_conflict not in ('raise', 'skip', 'return')
            throw 51001, N'on_conflict is not known. Give raise, skip or return.', 1;
        declare @pushed table (id bigint);
        declare @there table (dedup_key nvarchar(510), id bigint);
        declare @keys nvarchar(max) = N'["' + string_escape(@p_key, 'json') + N'"]';
        insert into @pushed exec {queue}_insert
            @p_payload, @p_headers, @p_delay, @p_due, @p_priority, @p_group, @p_key, @p_producer, @p_now;
        if not exists (select 1 from @pushed) and @p_on_conflict = 'raise'
            throw 51002, N'A live message has the key already. Push with another key, or have conflicts skipped.', 1;
        if not exists (select 1 from @pushed) and @p_on_conflict = 'return'
            insert into @there exec {queue}_look_up @keys;
        select coalesce((select id from @pushed), (select id from @there)) as id;
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
