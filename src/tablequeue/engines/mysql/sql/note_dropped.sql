-- Note the table of a queue, before the catalogue forgets the queue: nothing new gets its name.
insert ignore into {dropped} (name) values ('{table}');
