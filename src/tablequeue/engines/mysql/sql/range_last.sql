-- The last range of a subscription, and the offset at which its next claim begins. Index: the primary key. Locks: none.
select id, last_offset + 1 from {ranges} order by id desc limit 1;
