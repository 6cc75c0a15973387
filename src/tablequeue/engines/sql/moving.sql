-- Moves of messages to another queue, and between databases.

-- name: busy_groups
-- Index: {table}__in_progress. Locks: none.
select distinct group_key from {queue} where state = 'in_progress';

-- name: aside
-- Index: the primary key. Locks: none.
select
    {live_columns without lease_until finished_at}, token, expires_at
from {moving}
where id > :after
order by id
limit :n;

-- name: put_aside
-- Put messages of another database where move finds them, in the transaction in which it moves them into this queue.
-- Locks: the rows, on SQLite the database. A crash before the commit leaves nothing.
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
values (
    {queue_values without lease_until}, :expires_at
);

-- name: note_moved
-- Note messages that came from another database: the id that each had, its token, and its id here. If two moves bring
-- the same one at once, the primary key refuses the second.
-- In one transaction with move: a crash leaves both, or none.
insert into {moved} (id, token, new_id) values (:id, :token, :new_id);

-- name: put_history
-- Copy messages of the history of another database into this one, under new ids.
-- In one transaction with note_moved: a crash leaves both, or none.
insert into {history} (
    {history_row without token}, outcome
)
values (
    {history_values without token}, :outcome
);
