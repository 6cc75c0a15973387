-- Note the table of a queue, in the transaction that drops it: nothing new gets its name.
insert into {dropped} (name)
select '{table}' where not exists (select 1 from {dropped} where name = '{table}');
