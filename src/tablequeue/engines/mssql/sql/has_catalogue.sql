-- Whether the catalogue is there.
select case when object_id(N'{catalogue}', N'U') is null then 0 else 1 end as there;
