-- Whether there is a table :table, whose name has the schema in it.
select to_regclass(:table) is not null;
