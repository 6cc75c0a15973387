-- Progress of messages: what the consumers of messages in progress report of their work.

-- name: create_progress
-- `reports` counts, so that each report changes the row. Made at the first report. A DDL commits by itself: a crash
-- leaves the table or nothing.
create table if not exists {progress} (
    id bigint not null,
    token char(32) character set ascii collate ascii_bin not null,
    fraction double not null,
    detail longtext check (json_valid(detail)),
    reported_at datetime(6) not null,
    reports bigint not null,
    primary key (id, token)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: progress of {table}';

-- name: report_progress
-- In a caller's transaction :seen is 1, after a look on a connection of our own: at REPEATABLE READ the insert would
-- lock the message, which it only reads. Indexes: the primary keys.
-- Locks: the report, which nobody else writes. A crash leaves the report before.
insert into {progress} (id, token, fraction, detail, reported_at, reports)
select :id, :token, :fraction, :detail, {now}, 1
from dual
where :seen or exists (
    select 1 from {queue} force index (primary) where id = :id and state = 'in_progress' and token = :token
)
on duplicate key update fraction = :fraction, detail = :detail, reported_at = {now}, reports = reports + 1;

-- name: reported_progress
-- Indexes: the primary keys. Locks: none.
select message.id, report.fraction, report.detail, report.reported_at, message.attempts
from {given}
straight_join {queue} as message force index (primary) on message.id = given.id and message.state = 'in_progress'
straight_join {progress} as report on report.id = message.id and report.token = message.token;

-- name: forget_progress
-- A delete would lock whatever its subqueries read, also reports of open transactions: so a read finds the reports.
-- Indexes: the primary keys; it reads the whole table. Locks: the reports; locked ones are skipped. A crash leaves all
-- or nothing.
-- name: forget_progress.find
select json_arrayagg(json_array(id, token)) into @tq_gone
from (
    select old.id, old.token
    from {progress} as old
    left join {queue} as message
        on message.id = old.id and message.token = old.token and message.state = 'in_progress'
    where message.id is null
    limit :n
) as gone;
-- name: forget_progress.delete
delete {progress} from (
    select old.id, old.token
    from json_table(@tq_gone, '$[*]' columns (
        id bigint path '$[0]',
        token char(32) character set ascii collate ascii_bin path '$[1]'
    )) as given
    straight_join {progress} as old force index (primary) on old.id = given.id and old.token = given.token
    for update skip locked
) as gone
straight_join {progress} force index (primary) on {progress}.id = gone.id and {progress}.token = gone.token;
