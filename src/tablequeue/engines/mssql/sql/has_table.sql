-- Whether a table is there, of those that the user has rights on.
select case when object_id(cast(:table as nvarchar(300)), N'U') is null then 0 else 1 end as there;
