-- What the crowd and the server have counted.
set nocount on;
declare @completed int = (select count(*) from consumed);
declare @different int = (select count(distinct id) from consumed);
declare @escalations bigint = (
    select sum(index_lock_promotion_count)
    from sys.dm_db_index_operational_stats(db_id(), object_id(N'tq_emails'), null, null)
);
declare @deadlocks table (at datetime2(3), graph xml);
insert into @deadlocks (at, graph)
select event.value('@timestamp', 'datetime2(3)'), event.query('.')
from (
    select cast(target.target_data as xml) as ring
    from sys.dm_xe_session_targets as target
    inner join sys.dm_xe_sessions as session on session.address = target.event_session_address
    where session.name = N'system_health' and target.target_name = N'ring_buffer'
) as health
cross apply health.ring.nodes('/RingBufferTarget/event[@name="xml_deadlock_report"]') as found (event)
where event.exist('//process[@currentdbname="tablequeue_check"]') = 1;
declare @graphs int = (select count(*) from @deadlocks);
print concat(N'completed ', @completed, N' messages, ', @different, N' different ones');
print case when @completed = 20000 and @different = 20000
    then N'passed: each message once' else N'FAILED: each message once' end;
print concat(N'lock escalations: ', @escalations);
print case when coalesce(@escalations, 0) = 0 then N'passed: no escalation' else N'FAILED: no escalation' end;
print concat(N'deadlocks: ', @graphs);
print case when @graphs = 0 then N'passed: no deadlock' else N'FAILED: no deadlock' end;
select at, graph from @deadlocks order by at;
go
