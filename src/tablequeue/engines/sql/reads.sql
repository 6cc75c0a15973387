-- Reads of a queue and of its history.

-- name: peek
-- Index: {table}__{state}. Locks: none.
select
    {live_columns}
from {queue}
where state = '{state}' and id > :after
order by id
limit :n;

-- name: find
-- Index: the primary key. Locks: none.
select
    {live_columns}
from {queue}
where id = :id;

-- name: history
-- Index: the primary key. Locks: none.
select
    {history_columns}
from {history}
where id between :low and :high
order by id desc
limit :n;

-- name: history_bounds
-- Index: the primary key. Locks: none.
select (select min(id) from {history}), (select max(id) from {history});

-- name: live
-- Index: the primary key. Locks: none.
select
    {live_columns}
from {queue}
where id between :low and :high
order by id desc
limit :n;

-- name: live_bounds
-- Index: the primary key. Locks: none.
select (select min(id) from {queue}), (select max(id) from {queue});

-- name: finished
-- Indexes: the primary key, {table}__finished. Locks: none.
select
    {history_columns}
from {history}
where id between :low and :high and finished_at >= :since and finished_at < :until
order by id desc
limit :n;

-- name: finished_bounds
-- Without `+ 0` PostgreSQL reads the history by id from both ends, until it finds such a message.
-- Index: {table}__finished, for all of them. Locks: none.
select min(id + 0), max(id + 0)
from {history}
where finished_at >= :since and finished_at < :until;

-- name: holding
-- Indexes: {table}__in_progress, on MariaDB and MySQL {table}__state; {table}__lease. Locks: none.
select
    consumer,
    count(*) as held,
    min(popped_at) as since,
    max(popped_at) as claimed_at,
    max(lease_until) as lease_until
from {queue} where state = 'in_progress'
group by consumer
-- [ranges]
union all
select consumer, sum(messages), min(popped_at), max(popped_at), max(lease_until)
from {ranges} where lease_until is not null
group by consumer
-- [end]
;
