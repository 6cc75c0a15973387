-- Where the tasks of a bulk write from many processes put their messages before all of them are pushed at once
-- (publish), and the last batch of each writer that numbers its batches, so that a repeated one adds nothing.
-- The default of staged_at is in UTC, which is the time zone of the connections that stage.
-- Keys, groups and names are binary, as in the queue's own table.
-- Made at the first such write. A DDL commits by itself: a crash leaves a table or none.
create table if not exists {staged} (
    write_id char(32) character set ascii collate ascii_bin not null,
    attempt char(32) character set ascii collate ascii_bin not null,
    part int not null,
    place bigint not null,
    payload {staged_type} not null,
    headers longtext,
    priority int,
    group_key varbinary(1020),
    dedup_key varbinary(1020),
    due_at datetime(6),
    staged_at datetime(6) not null default current_timestamp(6),
    primary key (write_id, attempt, part, place)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: staged messages of {table}';
create table if not exists {writers} (
    writer varbinary(1020) not null primary key,
    batch bigint not null
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: writers of {table}';
