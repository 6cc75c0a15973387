-- Progress of messages: what the consumers of messages in progress report of their work.

-- name: create_progress
-- Made at the first report. Runs in one transaction: a crash leaves nothing.
create table if not exists {progress} (
    id integer not null,
    token text not null,
    fraction real not null,
    detail text check (detail is null or json_valid(detail)),
    reported_at integer not null,
    primary key (id, token)
) strict, without rowid;

-- name: report_progress
-- Index: the primary keys. Locks: the database. A crash leaves the report before.
insert into {progress} (id, token, fraction, detail, reported_at)
select id, token, :fraction, :detail, {now} from {queue} where id = :id and state = 'in_progress' and token = :token
on conflict (id, token) do update
set fraction = excluded.fraction, detail = excluded.detail, reported_at = excluded.reported_at;

-- name: reported_progress
-- Index: the primary keys. Locks: none.
select message.id, fraction, detail, reported_at, attempts
from {queue} as message
join {progress} as report on report.id = message.id and report.token = message.token
where message.id in (select value from json_each(:ids)) and message.state = 'in_progress';

-- name: forget_progress
-- Index: the primary keys; it reads the whole table of the reports. Locks: the database. A crash leaves all or nothing.
delete from {progress}
where (id, token) in (
    select report.id, report.token
    from {progress} as report
    left join {queue} as message
        on message.id = report.id and message.token = report.token and message.state = 'in_progress'
    where message.id is null
    limit :n
);
