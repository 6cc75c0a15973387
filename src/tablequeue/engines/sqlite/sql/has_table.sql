-- Whether a table is there.
select exists (select 1 from sqlite_master where type = 'table' and name = :table);
