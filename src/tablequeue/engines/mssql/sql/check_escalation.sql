-- How the locks of the queue may be escalated, where that is not disabled. Locks: none.
select lock_escalation_desc
from sys.tables
where object_id = object_id(N'{queue}') and lock_escalation_desc <> 'DISABLE';
