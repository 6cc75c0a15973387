-- What the stored procedures have in common.

-- name: checked_options
-- What push and push_many check of their options, but for the payload and the key.
if @p_headers is not null and isjson(@p_headers) = 0
    throw 51001, N'The headers are no JSON object. Give an object.', 1;
if (select max(type) from openjson(N'[' + @p_headers + N']')) <> 5
    throw 51001, N'The headers are no JSON object. Give an object.', 1;
if @p_delay is not null and @p_due is not null
    throw 51001, N'Both delay and due are given. Give one of them.', 1;
if @p_delay not between 0 and {longest}
    throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
-- [expires]
if @p_expires <= 0 or @p_expires > {longest}
    throw 51001, N'expires is not above 0, to 100 years. Give another number of seconds.', 1;
-- [not expires]
if @p_expires is not null throw 51001, N'The messages of this queue do not expire. Leave the seconds out.', 1;
-- [not priority]
if @p_priority is not null
    throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
-- [groups]
if @p_group is null or len((@p_group + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
    throw 51001, N'The queue has groups. Give the message its group, of 1 to 255 characters.', 1;
if charindex(nchar(0), @p_group collate Latin1_General_100_BIN2) > 0
    throw 51001, N'The group has a NUL character. Give another one.', 1;
-- [fair]
if len((@p_group + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
    throw 51001, N'The group is not of 1 to 255 characters. Give another one.', 1;
if charindex(nchar(0), @p_group collate Latin1_General_100_BIN2) > 0
    throw 51001, N'The group has a NUL character. Give another one.', 1;
-- [ungrouped]
if @p_group is not null throw 51001, N'The queue has no groups. Leave the group out.', 1;
-- [end]

-- name: filled_options
-- The values of options that are not given.
if datalength(@p_producer) > 1024
    throw 51001, N'The name of the producer is longer than 512 characters. Give a shorter one.', 1;
set @p_producer = coalesce(@p_producer, original_login());
set @p_priority = coalesce(@p_priority, 0);
-- [due]
if @p_due is null set @p_delay = coalesce(@p_delay, 0);
-- [strict]
set @p_group = N'';
-- [end]
declare @due_utc datetime2(6) = cast(switchoffset(@p_due, '+00:00') as datetime2(6));

-- name: settings
-- Filtered indexes need these settings of the session that calls; the other two are stored with the procedure.
set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
set numeric_roundabort off;
set transaction isolation level read committed;

-- name: begun
-- The beginning of a transaction.
{settings}
declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
begin try
    begin transaction;

-- name: ended
-- The end of the transaction. XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC
-- ends its own.
end try
begin catch
    -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
    if @alone = 1 and xact_state() <> 0 rollback transaction;
    throw;
end catch;

-- name: next_turn
-- After a turn of a claim: remember which group was served last, and sweep before the second turn.
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
-- [group_rate]
if exists (select 1 from @claimed) break; -- what it has spent is not noted yet
-- [end]
if @p_n <= 0 or @swept = 1 break;
set @swept = 1;
set @most = case @alone when 1 then 1000 else @p_n end;
exec @moved = {queue}__sweep 0, @most, @p_now;
if @moved = 0 break;
set @turn = @turn + 1;

-- name: spent_by_groups
-- Note what a claim has spent of the rates.
-- [group_rate]
declare @spending nvarchar(max) = (
    select given.slot, count(*) as number
    from (select {slot_of_text} as slot from @claimed) as given
    group by given.slot
    for json path
);
if @spending is not null exec {queue}__spend_group_rates @spending, @p_now;
-- [rate]
set @granted = (select count(*) from @claimed);
if @granted > 0 exec {queue}__spend_rate @granted, @p_now;
-- [end]

-- name: granted
-- What the rate of the queue allows.
exec @moved = {queue}__sweep 1000, @most, @p_now;
if @moved >= 0 set @swept = 1;
-- [rate]
declare @granted bigint;
declare @granted_at datetime2(6);
exec @granted = {queue}__grant_rate @p_now, @granted_at output;
set @p_n = case when @p_n < @granted then @p_n else @granted end;
set @p_now = @granted_at;
-- [end]

-- name: first_turn
-- Before the first turn of a claim.
declare @most bigint = case @alone when 1 then 1000 else @p_n end;
declare @swept bit = 0;
declare @turn int = 0;
-- [fair]
declare @p_served bigint =
    coalesce(cast(session_context({ring_of_session}) as bigint), cast(crypt_gen_random(8) as bigint));
declare @p_last bigint;
-- [end]
declare @moved int;
