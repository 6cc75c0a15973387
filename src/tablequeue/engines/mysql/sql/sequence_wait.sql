-- Wait for the lock of a topic's offsets, and hold it until the transaction ends.
select first_id from {holes} where first_id = 0 for update;
