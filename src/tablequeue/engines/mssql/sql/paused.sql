-- The time until which the claims of the queue are paused; no row if they are not. Index: the primary key. Locks: none.
select until from {paused} where name = '{table}' and until > {now};
