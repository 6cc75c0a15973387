-- The existing tables with the names of a queue's tables, and their comments, which tell the owner. Under the creators'
-- lock, and only if the catalogue has no such queue: then tables of ours were left by a crash during create or drop.
select table_name, table_comment
from information_schema.tables
where table_schema = {database} and table_name in (
    '{table}', '{table}_history', '{table}__turns', '{table}__runs', '{table}__holes', '{table}__ranges',
    '{table}__slots', '{table}__rate', '{table}__stripes', '{table}__group_rates', '{table}__results',
    '{table}__keys', '{table}__moving', '{table}__moved'
);
