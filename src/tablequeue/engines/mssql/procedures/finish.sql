-- Procedures that finish and cancel messages.

-- name: _move_dead
-- {queue}__move_dead: move the dead letters of the queue to {target}. For {queue}_fail and {queue}__expired, in whose
-- transaction it runs.
create or alter procedure {queue}__move_dead
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @p_ids nvarchar(max) = N'[' + stuff(
        (
            select top (1000) concat(N',', id)
            from {queue} with (index ({table}__dead), rowlock, readpast, updlock, readcommittedlock)
            where state = 'dead'
            for xml path('')
        ),
        1, 1, N''
    ) + N']';
    if @p_ids is null return;
    {sql move_dead ids=@p_ids origin=origin};
end;

-- name: _cancel_held
-- {queue}__cancel_held: the messages of the JSON array @p_ids that are held under @p_token, and were told to stop, end.
-- If @p_token is null, those whose lease has expired. Returns their number. For {queue}_fail, {queue}_release and
-- {queue}__expired.
create or alter procedure {queue}__cancel_held
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_error nvarchar(max),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql cancel_held into=nothing};
    return (select count(*) from @message);
end;

-- name: cancel
-- {queue}_cancel: cancel the messages of the JSON array @p_ids, for producers. Returns those that there are, and
-- whether each was told. A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop:
-- if it fails, is released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
create or alter procedure {queue}_cancel
    @p_ids nvarchar(max),
    @p_now datetime2(6) = null
as
begin
    {begun}
        {sql cancel into=nothing};
        commit transaction;
    {ended}
    -- [grouped]
    if @alone = 1 exec {queue}__move_on @p_now;
    -- [end]
    select id, told from @message;
end;

-- name: complete
-- {queue}_complete: complete the messages of the JSON array @p_ids that @p_token holds, for consumers; returns their
-- ids.
-- [results]
-- @p_result, the text of a JSON value, is kept as the result of each of them.
-- [end]
-- Error 51003 if it holds none of them: an error undoes the call, so it cannot be raised for some of them.
-- [grouped]
-- Then the next messages of their groups become ready; in a transaction of the caller's by the next pop after its
-- commit that finds too little.
-- [end]
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
create or alter procedure {queue}_complete
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_now datetime2(6) = null,
    @p_result nvarchar(max) = null
as
begin
    {begun}
        -- [results]
        if isjson(N'[' + @p_result + N']') = 0
            throw 51001, N'The result is no JSON. Give the text of one value.', 1;
        -- [not results]
        if @p_result is not null throw 51001, N'This queue keeps no results. Leave the result out.', 1;
        -- [end]
        declare @done table (id bigint not null primary key, group_key varbinary(1020) null);
        -- [at_least_once]
        insert into @done (id, group_key)
        select message.id, message.group_key
        from {queue} as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        -- [at_most_once]
        insert into @done (id)
        select message.id
        from {history} as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        -- [end]
        if @@rowcount = 0 and exists (select 1 from openjson(@p_ids))
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        -- [at_most_once]
        {sql complete_at_most_once into=nothing};
        -- [at_least_once]
        {sql complete into=nothing};
        -- [results]
        insert into {results} (id, result) select id, @p_result from @done where @p_result is not null;
        -- [keep grouped]
        insert into {turns} (group_key)
        select group_key from @done group by group_key order by min(id);
        -- [end]
        commit transaction;
    {ended}
    -- [grouped]
    if @alone = 1 exec {queue}__move_on @p_now;
    -- [end]
    select id from @done;
end;

-- name: fail
-- {queue}_fail: fail the attempt on message @p_id, held under @p_token, for consumers. Returns its new state.
-- It is tried again after @p_retry_in seconds, or else by the backoff; after {max_attempts} attempts it is dead.
-- One that was told to stop is cancelled. At most once it stays lost. Error 51003 if the lease is lost.
-- Locks: the message, until the transaction ends.
-- A crash before the commit leaves the message in progress.
create or alter procedure {queue}_fail
    @p_id bigint,
    @p_token uniqueidentifier,
    @p_error nvarchar(max) = N'',
    @p_retry_in float = null,
    @p_now datetime2(6) = null
as
begin
    {settings}
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    declare @state varchar(11) = 'lost';
    begin try
        begin transaction;
        declare @p_delay float = @p_retry_in;
        if @p_delay not between 0 and {longest}
            throw 51001, N'retry_in is not from 0 to 100 years. Give another one.', 1;
        set @p_error = coalesce(@p_error, N'');
        -- This collation counts a character of two code units as one, and does not cut it in two.
        if len((@p_error + N'.') collate Latin1_General_100_CI_AS_SC) - 1 > {longest_error}
            set @p_error = concat(
                left(@p_error collate Latin1_General_100_CI_AS_SC, {error_ends}), nchar(10), N'[... ',
                len((@p_error + N'.') collate Latin1_General_100_CI_AS_SC) - 1 - 2 * {error_ends},
                N' characters left out ...]', nchar(10),
                right(@p_error collate Latin1_General_100_CI_AS_SC, {error_ends})
            );
        -- [at_least_once]
        if @p_delay is null
            select @p_delay = (
                select min(wait.seconds)
                from (values
                    (cast({cap} as float)),
                    (
                        cast({base} as float) * power(
                            cast({factor} as float), case when attempts > {steps} then {steps} else attempts - 1 end
                        )
                    )
                ) as wait (seconds)
            ) * (1 - cast({jitter} as float) * rand())
            from {queue} where id = @p_id and token = @p_token;
        declare @p_delays nvarchar(max) =
            concat(N'[[', @p_id, N',', coalesce(convert(nvarchar(40), @p_delay, 2), N'null'), N']]');
        {sql fail delays=@p_delays max_attempts=max_attempts into=nothing};
        declare @changed bigint = @@rowcount;
        if @changed > 0
            select @state = state from {queue} where id = @p_id;
        else
        begin
            declare @it nvarchar(max) = concat(N'[', @p_id, N']');
            exec @changed = {queue}__cancel_held @it, @p_token, @p_error, @p_now;
            set @state = 'cancelled';
        end;
        -- [at_most_once]
        {sql fail_at_most_once ids=concat(N'[',@p_id,N']') into=nothing};
        declare @changed bigint = @@rowcount;
        -- [end]
        if @changed = 0
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        -- [dead_letter_to]
        if @state = 'dead' exec {queue}__move_dead @p_now;
        -- [end]
        commit transaction;
    {ended}
    -- [grouped]
    if @alone = 1 and @state in ('dead', 'cancelled', 'blocked') exec {queue}__move_on @p_now;
    -- [end]
    select @state as state;
end;

-- name: release
-- {queue}_release: release the messages of the JSON array @p_ids that are held under @p_token, for consumers. Returns
-- their ids. They are ready after @p_delay seconds, and the attempt does not count; those that were told to stop end.
-- Error 51003 if none is held.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
create or alter procedure {queue}_release
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_delay float = 0,
    @p_now datetime2(6) = null
as
begin
    {begun}
        if @p_delay is null or @p_delay not between 0 and {longest}
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        declare @done table (id bigint not null primary key);
        insert into @done (id)
        select message.id
        from {queue} as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        if @@rowcount = 0 and exists (select 1 from openjson(@p_ids))
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        {sql release into=nothing};
        exec {queue}__cancel_held @p_ids, @p_token, null, @p_now;
        select id from @done;
        commit transaction;
    {ended}
end;

-- name: extend
-- {queue}_extend: the lease on message @p_id, held under @p_token, ends @p_seconds (else {lease}) from now; for
-- consumers. Returns that end. Error 51003 if the lease is lost. Locks: the message, until the transaction ends.
create or alter procedure {queue}_extend
    @p_id bigint,
    @p_token uniqueidentifier,
    @p_seconds float = null,
    @p_now datetime2(6) = null
as
begin
    {begun}
        declare @p_lease float = coalesce(@p_seconds, {lease});
        if @p_lease not between 0 and {longest}
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        {sql extend ids=concat(N'[',@p_id,N']') into=nothing};
        if @@rowcount = 0
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        select @until as lease_until;
        commit transaction;
    {ended}
end;
