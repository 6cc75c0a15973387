-- Whether there is a table :table, whose name has the schema in it.
select case when object_id(cast(:table as nvarchar(300)), N'U') is null then 0 else 1 end as there;
