-- Return whether the table :table exists, of those that the user has rights on. Its name has the schema before it.
select case when object_id(cast(:table as nvarchar(300)), N'U') is null then 0 else 1 end as there;
