-- {queue}__expire: move up to @p_n waiting messages whose time is over out of the queue. Returns their number. For
-- {queue}__sweep.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__expire
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    -- [none dead_letter_to]
    begin transaction;
    -- [end]
    -- [none]
    {sql expire_none n=@p_n into=nothing};
    declare @moved int = @@rowcount;
    -- [end]
    -- [none dead_letter_to]
    exec {queue}__move_dead @p_now;
    commit transaction;
    -- [end]
    -- [none]
    return @moved;
    -- [end]
    -- [keep]
    -- A statement has one OUTPUT ... INTO: its rows go to the history, and their groups to the notes, from a table.
    declare @over table (
        {history_types}, outcome varchar(9) not null
    );
    declare @number int;
    {sql expire_keep n=@p_n into=@over};
    set @number = @@rowcount;
    insert into {history} (
        {history_row}, outcome
    )
    select
        {history_row}, outcome
    from @over;
    -- [end]
    -- [keep grouped]
    insert into {turns} (group_key)
    select convert(varbinary(1020), group_key) from @over group by group_key order by min(id);
    -- [end]
    -- [keep]
    return @number;
    -- [end]
end;
go
