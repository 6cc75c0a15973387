-- A message that was taken in this transaction, and whose payload cannot be read, is put back as a dead letter.
-- Index: the primary key. Locks: the row. A crash before the commit leaves it where it was before it was taken.
insert into {queue} (
    id, state, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, group_key, dedup_key, consumer,
    headers, errors, payload
)
values (
    :id, 'dead', :attempts, :priority, cast(:pushed_at as timestamptz), cast(:due as timestamptz),
    cast(:popped_at as timestamptz), cast(:popped_at as timestamptz), cast(:group as text), cast(:key as text),
    cast(:consumer as text), cast(:headers as json), cast(:errors as jsonb), cast(:payload as {payload_type})
);
