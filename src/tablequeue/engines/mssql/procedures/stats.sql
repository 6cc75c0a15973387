-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_stats
    @p_now datetime2(6) = null
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
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
go
