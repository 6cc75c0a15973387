-- A message that was taken in this transaction, and whose payload cannot be read, is put back as a dead letter.
-- Index: the primary key. Locks: the database. A crash before the commit leaves it where it was before it was taken.
insert into {queue} (
    id, state, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, group_key, dedup_key, consumer,
    headers, errors, payload
)
values (
    :id, 'dead', :attempts, :priority, :pushed_at, :due, :popped_at, :popped_at, :group, :key, :consumer, :headers,
    :errors, :payload
);
