-- Return whether the table :table exists.
select exists (select 1 from sqlite_master where type = 'table' and name = :table);
