-- The tables and functions of a subscription's ranges of the log.

-- name: create_ranges
-- A range with a lease_until is in progress. left_ids, a JSON array, are the messages that have left it, the last at
-- finished_at: completed before the others; or detached, and in apart_ids, too. A range that is finished has no
-- left_ids. When its lease expires, the messages that have not left it are detached, without being in apart_ids.
-- {table}__last is what a claim reads of the last range. No other statement changes its columns, so a claim does not
-- wait for a transaction that completes a range, and stays open.
-- Runs in one transaction: a crash leaves nothing.
create table {ranges} (
    id bigint identity (1, 1) not null constraint pk_{table}__ranges primary key clustered,
    first_offset bigint not null,
    last_offset bigint not null,
    messages int not null,
    ids_sum bigint not null,
    token uniqueidentifier null,
    consumer nvarchar(512) null,
    popped_at datetime2(6) not null,
    lease_until datetime2(6) null,
    finished_at datetime2(6) null,
    left_ids varchar(max) null,
    apart_ids varchar(max) null
);
alter table {ranges} set (lock_escalation = disable);
create index {table}__last on {ranges} (id) include (last_offset);
create index {table}__token on {ranges} (token) include (lease_until) where lease_until is not null;
create index {table}__lease on {ranges} (lease_until) where lease_until is not null;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (@start, @start - 1, 0, 0, @now, @now);
