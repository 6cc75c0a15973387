-- Whether there is a table :table.
select exists (select 1 from sqlite_master where type = 'table' and name = :table);
