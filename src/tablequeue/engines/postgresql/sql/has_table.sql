-- Whether there is a table :table, whose name may have the schema before it. Who may not use that schema is told so.
select to_regclass(cast(:table as text)) is not null;
