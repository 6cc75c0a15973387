-- The streams that read a queue: for each the batch that it claimed last, under which token, and the last one that is
-- completed. They differ by one at most. `epoch` counts its runs, and fences all but the last.
-- `failures`: of the messages of that batch, by id, those that a stage could not process, with the error; JSON.
-- Names are binary, as keys are.
-- Made when the first stream begins. A DDL commits by itself: a crash leaves the table or nothing.
create table if not exists {streams} (
    stream varbinary(1020) not null primary key,
    epoch bigint not null,
    batch bigint not null default 0,
    completed bigint not null default 0,
    token char(32) character set ascii collate ascii_bin,
    claimed_at datetime(6),
    failures longtext not null
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: streams of {table}';
