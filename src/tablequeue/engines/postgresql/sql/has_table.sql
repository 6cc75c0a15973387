-- Whether a table is there. Who may not use its schema is told so.
select to_regclass(cast(:table as text)) is not null;
