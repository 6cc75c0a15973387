-- Range :id, whose lease has expired, is not in progress any more. The messages that had not left it are set apart.
-- Index: the primary key. Locks: the row. In one transaction with range_set_apart.
update {ranges} set lease_until = null where id = :id;
