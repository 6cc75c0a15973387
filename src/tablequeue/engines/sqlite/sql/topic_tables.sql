-- The tables and functions of a topic.

-- name: create_topic
-- One transaction writes at a time. So the ids have the order of the commits, and no gaps: the offset of a message is
-- its id. Runs in one transaction: a crash leaves nothing.
create table {log} (
    id integer primary key autoincrement,
    pushed_at integer not null,
    producer text,
    group_key text,
    headers text check (headers is null or json_valid(headers)),
    payload {payload_type}
) strict;

-- name: create_topic_groups
-- It is a trigger, because SQLite adds no constraint to a table that is there. Locks: the database. Runs in one
-- transaction: a crash leaves nothing.
create trigger {table}__grouped before insert on {log} when new.group_key is null
    begin
        select raise(abort, 'the topic has groups, and none is given');
    end;

-- name: drop_topic
drop table if exists {log};
