-- Whether a table is there, of those that the user has rights on. :table may have its database before it.
select count(*) from information_schema.tables
where table_schema = {database} and table_name = substring_index(:table, '.', -1);
