-- The tables and functions of a topic.

-- name: create_topic
-- Ids are given before commits. So the offset of a message, which says when it became visible, is in the runs: a run is
-- ids without a gap that were all visible when a session looked, and an offset is first_offset + id - first_id. The run
-- with the lowest offset is the last message that was dropped; at first 0, which never was.
-- The holes are the ids between runs: they were rolled back, or will be committed. seen_at is the time of the first
-- look. The row of the id 0 is no hole: who gives offsets has locked it.
-- A hole that no transaction will fill is closed by rows without pushed_at, which are no messages; see close_holes.
-- Under the creators' lock. A crash before the end leaves tables that are not in the catalogue: see create.
create table {log} (
    id bigint not null auto_increment primary key,
    pushed_at datetime(6),
    producer varchar(255),
    group_key varbinary(1020),
    headers longtext,
    payload {payload_type}
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: log of {table}';
create table {runs} (
    first_offset bigint not null primary key,
    first_id bigint not null,
    last_id bigint not null,
    key {table}__last_id (last_id)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: runs of {table}';
insert into {runs} (first_offset, first_id, last_id) values (0, 0, 0);
create table {holes} (
    first_id bigint not null primary key,
    last_id bigint not null,
    seen_at datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: holes of {table}';
insert into {holes} (first_id, last_id, seen_at) values (0, -1, utc_timestamp(6));

-- name: create_topic_groups
-- A row that closes a hole is no message; see close_holes. DELIMITER is for the client programs: there are semicolons
-- inside the trigger.
-- A crash before the end leaves tables that are not in the catalogue: see create.
delimiter //
create trigger {log}__grouped before insert on {log} for each row
    if new.group_key is null and new.pushed_at is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The topic has groups, and none is given. Give the message its group.';
    end if //
delimiter ;

-- name: drop_topic
-- It waits for transactions that use the tables. The catalogue forgot the topic before: a crash leaves tables that the
-- next create of this name drops.
drop table if exists {holes};
drop table if exists {runs};
drop table if exists {log};
