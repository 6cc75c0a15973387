-- {queue}_insert: the push of {queue}_push, without its checks.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_insert
    @p_payload {payload_type},
    @p_headers nvarchar(max),
    @p_delay float,
    @p_due datetime2(6),
    @p_priority int,
    @p_group nvarchar(510),
    @p_key nvarchar(510),
    @p_producer nvarchar(512),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql push}
end;
go
