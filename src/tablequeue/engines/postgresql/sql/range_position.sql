-- The offset at which the next claim of a subscription begins. Index: the primary key. Locks: none.
select last_offset + 1 from {ranges} order by id desc limit 1;
