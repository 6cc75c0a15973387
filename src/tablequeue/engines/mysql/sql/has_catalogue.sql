-- Whether the catalogue is there.
select count(*) from information_schema.tables where table_schema = {database} and table_name = 'tq_queues';
