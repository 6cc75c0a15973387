-- Progress of messages: what the consumers of messages in progress report of their work.

-- name: create_progress
-- Made at the first report, under the creators' lock. Runs in one transaction: a crash leaves nothing.
create table if not exists {progress} (
    id bigint not null,
    token uuid not null,
    fraction float8 not null,
    detail json,
    reported_at timestamptz not null,
    constraint {table}__progress_id primary key (id, token)
);

-- name: report_progress
-- Indexes: the primary keys. Locks: the report, which nobody else writes. A crash leaves the report before.
insert into {progress} (id, token, fraction, detail, reported_at)
select id, token, cast(:fraction as float8), cast(cast(:detail as text) as json), {now}
from {queue}
where id = :id and state = 'in_progress' and token = cast(:token as uuid)
on conflict (id, token) do update
set fraction = excluded.fraction, detail = excluded.detail, reported_at = excluded.reported_at;

-- name: reported_progress
-- Indexes: the primary keys. Locks: none.
select message.id, fraction, cast(detail as text), reported_at, attempts
from {queue} as message
join {progress} as report on report.id = message.id and report.token = message.token
where message.id = any(cast(:ids as bigint[])) and message.state = 'in_progress';

-- name: forget_progress
-- Not a join: a plan that was kept from when both tables were small took 800 ms for 5,000 reports, and this 17.
-- Index: that of the messages in progress, all of which it reads, as it does the reports.
-- Locks: the reports; those that another call deletes are left out. A crash leaves all or nothing.
delete from {progress}
where ctid = any(array(
    select ctid
    from {progress}
    where (id, token) not in (select id, token from {queue} where state = 'in_progress' and token is not null)
    limit :n
    for update skip locked
));
