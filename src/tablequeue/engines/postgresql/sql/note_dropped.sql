-- Note the table of a queue, in the transaction that drops it: nothing new gets its name.
insert into {dropped} (name) values ('{table}') on conflict do nothing;
