-- {queue}__move_dead: move the dead letters of the queue to {target}. For {queue}_fail and {queue}__expired, in whose
-- transaction it runs.
set ansi_nulls, quoted_identifier on;
go
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
go
