-- Return whether the table :table exists, of those that the user has rights on. Its name may have the database before
-- it.
select count(*) from information_schema.tables
where table_schema = {database} and table_name = substring_index(:table, '.', -1);
