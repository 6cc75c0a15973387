-- When the message at offset :start was pushed. Indexes: the primary keys. Locks: none.
select pushed_at from {log} where id = (
    select first_id + :start - first_offset from {runs} where first_offset <= :start order by first_offset desc limit 1
);
