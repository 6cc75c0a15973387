-- What is there under the names of a queue's tables, and whose it says it is. Under the creator's lock, and only when
-- the catalogue has no such queue: then tables of ours are what a crash in the middle of create or drop left.
select table_name, table_comment
from information_schema.tables
where table_schema = {database} and table_name in ('{table}', '{table}_history', '{table}__turns');
