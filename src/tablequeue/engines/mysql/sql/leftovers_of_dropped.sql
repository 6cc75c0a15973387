-- The tables of dropped queues that are still there, because a crash came after the catalogue had forgotten the queue.
-- Their comments tell whose they are. First what refers to another one. Under the creators' lock.
select t.table_name
from information_schema.tables as t
join {dropped} as d on d.name = substring_index(t.table_comment, ' of ', -1)
where t.table_schema = {database} and t.table_comment like 'tablequeue: %'
    and not exists (
        select 1 from {catalogue} as c where instr(c.definition, concat('"table": "', d.name, '"')) > 0
    )
order by t.table_comment not like 'tablequeue: results of %';
