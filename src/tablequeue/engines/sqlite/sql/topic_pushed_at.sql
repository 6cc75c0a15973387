-- When the message at offset :start, or the first one after it, was pushed. Index: the primary key. Locks: none.
select pushed_at from {log} where id >= :start order by id limit 1;
