-- Fail if a dropped queue had this table: then another name has to be chosen. The library chooses one by itself, under
-- the creators' lock; this is for printed SQL. Index: the primary key.
insert into {dropped} (name) values ('{table}');
delete from {dropped} where name = '{table}';
