-- Procedures that read.

-- name: read_history
-- {queue}_read_history: the last @p_n finished messages with ids from @p_low to @p_high, highest id first; for
-- observers. Not {queue}_history, which is the table.
create or alter procedure {queue}_read_history
    @p_n bigint = 10,
    @p_low bigint = 0,
    @p_high bigint = 9223372036854775807
as
begin
    {settings}
    {sql history};
end;

-- name: _peek_blocked
-- {queue}__peek_blocked: the messages of {queue}_peek that are blocked.
create or alter procedure {queue}__peek_blocked
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=blocked};
end;

-- name: _peek_dead
-- {queue}__peek_dead: the messages of {queue}_peek that are dead.
create or alter procedure {queue}__peek_dead
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=dead};
end;

-- name: _peek_in_progress
-- {queue}__peek_in_progress: the messages of {queue}_peek that are in_progress.
create or alter procedure {queue}__peek_in_progress
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=in_progress};
end;

-- name: _peek_ready
-- {queue}__peek_ready: the messages of {queue}_peek that are ready.
create or alter procedure {queue}__peek_ready
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=ready};
end;

-- name: _peek_scheduled
-- {queue}__peek_scheduled: the messages of {queue}_peek that are scheduled.
create or alter procedure {queue}__peek_scheduled
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    {sql peek state=scheduled};
end;

-- name: stats
-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers.
create or alter procedure {queue}_stats
    @p_now datetime2(6) = null
as
begin
    {settings}
    declare @live table (
        ready bigint, scheduled bigint, in_progress bigint, dead bigint, blocked bigint, oldest_age float
    );
    declare @ended table (finished bigint null);
    {sql stats into=@live};
    -- [keep]
    {sql stats_history into=@ended};
    -- [end]
    select live.ready, live.scheduled, live.in_progress, live.dead, live.blocked, live.oldest_age, ended.finished
    from @live as live
    left join @ended as ended on 1 = 1;
end;

-- name: peek
-- {queue}_peek: the first @p_n messages of a state with ids above @p_after, claiming none; for observers.
create or alter procedure {queue}_peek
    @p_n bigint = 10,
    @p_state varchar(20) = 'ready',
    @p_after bigint = 0
as
begin
    {settings}
    if @p_state is null or @p_state not in ({states})
        throw 51001, N'The state is not known. Give ready, scheduled, in_progress, dead or blocked.', 1;
    -- The state is spelled into each statement: its index serves no parameter.
    if @p_state = 'ready' exec {queue}__peek_ready @p_n, @p_after;
    if @p_state = 'scheduled' exec {queue}__peek_scheduled @p_n, @p_after;
    if @p_state = 'in_progress' exec {queue}__peek_in_progress @p_n, @p_after;
    if @p_state = 'dead' exec {queue}__peek_dead @p_n, @p_after;
    if @p_state = 'blocked' exec {queue}__peek_blocked @p_n, @p_after;
end;

-- name: lost
-- {queue}_lost: the first @p_n messages that were claimed at most once, @p_age seconds ago (else {lease}) or longer,
-- and not acknowledged; for observers.
create or alter procedure {queue}_lost
    @p_n bigint = 10,
    @p_age float = {lease},
    @p_now datetime2(6) = null
as
begin
    {settings}
    {sql lost after=0};
end;
