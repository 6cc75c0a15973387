-- Progress of messages: what the consumers of messages in progress report of their work.

-- name: create_progress
-- Made at the first report, under the creators' lock. Runs in one transaction: a crash leaves nothing.
if object_id(N'{progress}', N'U') is null
begin
    create table {progress} (
        id bigint not null,
        token uniqueidentifier not null,
        fraction float not null,
        detail nvarchar(max) null,
        reported_at datetime2(6) not null,
        constraint pk_{table}__progress primary key clustered (id, token)
    );
    alter table {progress} set (lock_escalation = disable);
end;

-- name: report_progress
-- The answer is a row, if it was kept. If two threads insert the first report of one claim at once, the primary key
-- refuses the second one (error 2627), which tries again. Indexes: the primary keys.
-- Locks: the report, which nobody else writes. A crash leaves the report before.
declare @kept int;
update report
set fraction = @fraction, detail = @detail, reported_at = @now
from {queue} as message with (forceseek)
inner join {progress} as report with (rowlock, forceseek) on report.id = message.id and report.token = message.token
where message.id = @id and message.token = @token and message.state = 'in_progress';
set @kept = @@rowcount;
if @kept = 0
begin
    insert into {progress} (id, token, fraction, detail, reported_at)
    select id, token, @fraction, @detail, @now
    from {queue} with (forceseek)
    where id = @id and token = @token and state = 'in_progress';
    set @kept = @@rowcount;
end;
select @kept as kept where @kept > 0;

-- name: reported_progress
-- Indexes: the primary keys. Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for transactions that change one
-- of these rows.
select message.id, report.fraction, report.detail, report.reported_at, message.attempts
from {queue} as message with (forceseek)
inner join {progress} as report with (forceseek) on report.id = message.id and report.token = message.token
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'in_progress';

-- name: forget_progress
-- The second statement tests again what the first one found: under READ_COMMITTED_SNAPSHOT a statement sees the
-- messages as they were at its start, and the first one may find a report of a claim that began since then.
-- Indexes: the primary keys; it reads the whole table of the reports. Locks: the reports; locked ones are skipped.
-- Without READ_COMMITTED_SNAPSHOT it waits for transactions that change a message on which there is a report, up to the
-- lock time-out; progress.py then leaves the reports for the next time. A crash leaves all or nothing.
declare @old table (id bigint not null, token uniqueidentifier not null, primary key (id, token));
insert into @old (id, token)
select top (@n) report.id, report.token
from {progress} as report with (rowlock, readpast, readcommittedlock)
left join {queue} as message with (forceseek)
    on message.id = report.id and message.token = report.token and message.state = 'in_progress'
where message.id is null;
delete from report
output deleted.id
from @old as old
inner join {progress} as report with (rowlock, readpast, readcommittedlock, forceseek)
    on report.id = old.id and report.token = old.token
left join {queue} as message with (forceseek)
    on message.id = report.id and message.token = report.token and message.state = 'in_progress'
where message.id is null;
