-- Return whether the table :table exists, whose name may have the schema before it. A user that may not use that schema
-- gets an error.
select to_regclass(cast(:table as text)) is not null;
