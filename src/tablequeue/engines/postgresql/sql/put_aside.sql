-- Put messages of another database where move finds them, in the transaction in which it moves them into this queue.
-- Locks: the rows. A crash before the commit leaves nothing.
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
values (
    {queue_values without lease_until}, cast(:expires_at as timestamptz)
);
