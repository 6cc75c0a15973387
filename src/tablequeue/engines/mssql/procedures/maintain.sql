-- Procedures of maintenance, which others call.

-- name: _due
-- {queue}__due: make up to @p_n messages ready that are due. Returns their number. For {queue}__sweep.
create or alter procedure {queue}__due
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql sweep.due n=@p_n into=nothing};
    return @@rowcount;
end;

-- name: _expire
-- {queue}__expire: move up to @p_n waiting messages whose time is over out of the queue. Returns their number. For
-- {queue}__sweep.
create or alter procedure {queue}__expire
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    -- [none dead_letter_to]
    begin transaction;
    -- [none]
    {sql expire n=@p_n into=nothing};
    declare @moved int = @@rowcount;
    -- [none dead_letter_to]
    exec {queue}__move_dead @p_now;
    commit transaction;
    -- [none]
    return @moved;
    -- [keep]
    -- A statement has one OUTPUT ... INTO: its rows go to the history, and their groups to the notes, from a table.
    declare @over table (
        {history_types}, outcome varchar(9) not null
    );
    declare @number int;
    {sql expire n=@p_n into=@over};
    set @number = @@rowcount;
    insert into {history} (
        {history_row}, outcome
    )
    select
        {history_row}, outcome
    from @over;
    -- [keep grouped]
    insert into {turns} (group_key)
    select convert(varbinary(1020), group_key) from @over group by group_key order by min(id);
    -- [keep]
    return @number;
    -- [end]
end;

-- name: _expired
-- {queue}__expired: make up to @p_n abandoned messages ready, or dead letters. Returns their number. For
-- {queue}__sweep.
create or alter procedure {queue}__expired
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    -- [dead_letter_to]
    begin transaction;
    -- [end]
    {sql sweep.expired n=@p_n max_attempts=max_attempts into=nothing};
    declare @moved int = @@rowcount;
    -- [at_least_once]
    declare @told nvarchar(max) = N'[' + stuff((
        select concat(N',', id)
        from {queue} with (index ({table}__in_progress), rowlock, readpast, readcommittedlock)
        where state = 'in_progress' and lease_until <= @now and cancelled_at is not null
        for xml path (N'')
    ), 1, 1, N'') + N']';
    exec {queue}__cancel_held @told, null, N'lease expired', @p_now;
    -- [dead_letter_to]
    exec {queue}__move_dead @p_now;
    commit transaction;
    -- [end]
    return @moved;
end;

-- name: _move_on
-- {queue}__move_on: promote after complete or fail, in a transaction of its own. They have taken effect, and the caller
-- must not repeat them because promote fails. A later pop that finds too few messages promotes.
create or alter procedure {queue}__move_on
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        exec {queue}__promote 1000, @p_now;
        commit transaction;
    end try
    begin catch
        if xact_state() <> 0 rollback transaction;
    end catch;
end;

-- name: _outdated
-- {queue}__outdated: delete from the history what is older than its retention. For {queue}__sweep.
create or alter procedure {queue}__outdated
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql purge_history n=1000 age=retention into=nothing};
end;

-- name: _promote
-- {queue}__promote: make the lowest blocked message the head, in up to @p_n groups without one. Returns the number of
-- groups. For the other procedures.
-- It runs in the transaction of their caller, which keeps the new heads locked until it commits: keep transactions
-- around pop and take short. If two transactions promote in the same group at once, one may fail with error 2601. Try
-- it again, as after a deadlock.
create or alter procedure {queue}__promote
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql promote n=@p_n into=nothing};
    declare @promoted int = (select count(*) from @head);
    return @promoted;
end;

-- name: _sweep
-- {queue}__sweep: make messages ready that are due or abandoned, up to @p_n of each kind. Returns how many, or -1 if
-- the last sweep of this session was less than @p_every milliseconds ago. For pop and take.
-- In a caller's transaction, no other consumer can claim these messages until the commit. So there pop and take sweep
-- only as many as they want, and else 1,000. The session remembers the time of its last sweep in its context.
create or alter procedure {queue}__sweep
    @p_every bigint,
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @clock bigint = datediff_big(millisecond, '2000-01-01', sysutcdatetime());
    if @p_now is null and @clock < convert(bigint, session_context(N'{queue}')) + @p_every return -1;
    exec sys.sp_set_session_context @key = N'{queue}', @value = @clock;
    declare @moved int;
    exec @moved = {queue}__due @p_n, @p_now;
    declare @more int;
    exec @more = {queue}__expired @p_n, @p_now;
    set @moved = @moved + @more;
    -- [expires]
    exec @more = {queue}__expire @p_n, @p_now;
    set @moved = @moved + @more;
    -- [grouped]
    exec @more = {queue}__promote @p_n, @p_now;
    set @moved = @moved + @more;
    -- [retention]
    exec {queue}__outdated @p_now;
    -- [end]
    return @moved;
end;
