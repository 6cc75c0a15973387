-- Upgrades of tables of an older schema version.

-- name: widen_catalogue
-- Names of up to 255 characters, of all alphabets, which catalogues of schema version 4 cannot hold.
-- Under the creators' lock. Like every DDL it commits by itself.
alter table {catalogue} modify name varchar(255) character set utf8mb4 collate utf8mb4_bin not null;

-- name: upgrade_4
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Each statement commits by itself. An index that is not there is passed over: a crash may have come after its
-- statement.
alter table {queue} rename index {table}_state to {table}__state;
alter table {queue} rename index {table}_key to {table}__key;
-- [sorted]
alter table {queue} rename index {table}_ready to {table}__ready;
-- [end]
-- [grouped]
-- The triggers are made again, by create_group_triggers, for they name the table of the notes. The old ones go last, in
-- upgrade_4_triggers: until then they refuse every change, for that table has its new name. No change goes unnoted.
drop trigger if exists {queue}__pushed;
drop trigger if exists {queue}__left;
drop trigger if exists {queue}__moved;
alter table {queue} rename index {table}_front to {table}__front;
alter table {queue} rename index {table}_blocked to {table}__blocked;
-- [end]
-- [keep]
alter table {history} rename index {table}_finished to {table}__finished;
-- [end]

-- name: upgrade_4_triggers
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
drop trigger if exists {queue}_pushed;
drop trigger if exists {queue}_left;
drop trigger if exists {queue}_moved;

-- name: upgrade_5
-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Each statement commits by itself. A column that is there is passed over: a crash may have come after its statement.
alter table {queue} add column expires_at datetime(6) after lease_until;
alter table {queue} add column cancelled_at datetime(6) after expires_at;
-- [grouped]
-- Messages of a group that were claimed in a run; see create_groups.
alter table {queue} add column in_run bigint not null default 0;
alter table {queue} drop index {table}__front, add unique key {table}__front (front, in_run);
-- [end]
-- [keep]
alter table {history} add column outcome varchar(9) character set ascii collate ascii_bin after finished_at;
-- [end]

-- name: upgrade_7_batches
-- From schema version 6 to 7: an index by which batches are forgotten that ended long ago.
-- It commits by itself. An index that is there is passed over: another queue has made it, or a crash came.
alter table {batches} add key ended (queue, ended_at);

-- name: upgrade_4_if_schedules
-- From schema version 3 to 4: the schedules are in {schedules}, which is no queue's table.
-- Only if there is such a table, and no queue has that name.
rename table {prefix}tq_schedules to {schedules};

-- name: upgrade_4_if_streams
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
rename table {queue}_streams to {queue}__streams;

-- name: upgrade_4_if_turns
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
rename table {queue}_turns to {queue}__turns;

-- name: upgrade_4_if_writers
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
rename table {queue}_writers to {queue}__writers;
