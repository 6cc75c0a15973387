-- Upgrades of tables of an older schema version.

-- name: widen_catalogue
-- Names of up to 255 characters, of all alphabets, which catalogues of schema version 4 cannot hold.
-- Under the creators' lock, in one transaction: a crash leaves the catalogue as it was.
alter table {catalogue} drop constraint pk_tq_queues;
alter table {catalogue} alter column name nvarchar(255) collate Latin1_General_100_BIN2 not null;
alter table {catalogue} add constraint pk_tq_queues primary key clustered (name);

-- name: upgrade_4
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Of the procedures, those that were for the others are dropped; all are to be made again.
-- Locks: the table, for a moment. Runs in one transaction: a crash leaves version 3. What has its new name is passed
-- over.
if indexproperty(object_id(N'{queue}'), N'{table}_ready', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_ready', N'{table}__ready', N'INDEX';
if indexproperty(object_id(N'{queue}'), N'{table}_scheduled', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_scheduled', N'{table}__scheduled', N'INDEX';
if indexproperty(object_id(N'{queue}'), N'{table}_in_progress', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_in_progress', N'{table}__in_progress', N'INDEX';
if indexproperty(object_id(N'{queue}'), N'{table}_dead', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_dead', N'{table}__dead', N'INDEX';
if indexproperty(object_id(N'{queue}'), N'{table}_blocked', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_blocked', N'{table}__blocked', N'INDEX';
if indexproperty(object_id(N'{queue}'), N'{table}_key', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_key', N'{table}__key', N'INDEX';
if indexproperty(object_id(N'{queue}'), N'{table}_due', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_due', N'{table}__due', N'INDEX';
if object_id(N'{prefix}df_{table}_state', N'D') is not null
    exec sp_rename N'{prefix}df_{table}_state', N'df_{table}__state', N'OBJECT';
if object_id(N'{prefix}df_{table}_attempts', N'D') is not null
    exec sp_rename N'{prefix}df_{table}_attempts', N'df_{table}__attempts', N'OBJECT';
if object_id(N'{prefix}df_{table}_priority', N'D') is not null
    exec sp_rename N'{prefix}df_{table}_priority', N'df_{table}__priority', N'OBJECT';
if object_id(N'{prefix}ck_{table}_state', N'C') is not null
    exec sp_rename N'{prefix}ck_{table}_state', N'ck_{table}__state', N'OBJECT';
if object_id(N'{queue}_arrange', N'P') is not null drop procedure {queue}_arrange;
if object_id(N'{queue}_claim', N'P') is not null drop procedure {queue}_claim;
if object_id(N'{queue}_due', N'P') is not null drop procedure {queue}_due;
if object_id(N'{queue}_expired', N'P') is not null drop procedure {queue}_expired;
if object_id(N'{queue}_finish', N'P') is not null drop procedure {queue}_finish;
if object_id(N'{queue}_give_back', N'P') is not null drop procedure {queue}_give_back;
if object_id(N'{queue}_insert', N'P') is not null drop procedure {queue}_insert;
if object_id(N'{queue}_insert_each', N'P') is not null drop procedure {queue}_insert_each;
if object_id(N'{queue}_look_up', N'P') is not null drop procedure {queue}_look_up;
if object_id(N'{queue}_outdated', N'P') is not null drop procedure {queue}_outdated;
if object_id(N'{queue}_peek_blocked', N'P') is not null drop procedure {queue}_peek_blocked;
if object_id(N'{queue}_peek_dead', N'P') is not null drop procedure {queue}_peek_dead;
if object_id(N'{queue}_peek_in_progress', N'P') is not null drop procedure {queue}_peek_in_progress;
if object_id(N'{queue}_peek_ready', N'P') is not null drop procedure {queue}_peek_ready;
if object_id(N'{queue}_peek_scheduled', N'P') is not null drop procedure {queue}_peek_scheduled;
if object_id(N'{queue}_remove', N'P') is not null drop procedure {queue}_remove;
if object_id(N'{queue}_sweep', N'P') is not null drop procedure {queue}_sweep;
-- [grouped]
if indexproperty(object_id(N'{queue}'), N'{table}_front', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_front', N'{table}__front', N'INDEX';
-- [end]
-- [keep]
if indexproperty(object_id(N'{history}'), N'{table}_finished', 'IndexID') is not null
    exec sp_rename N'{history}.{table}_finished', N'{table}__finished', N'INDEX';
-- [end]

-- name: upgrade_5
-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Locks: the tables, for a moment. Runs in one transaction: a crash leaves version 4.
alter table {queue} add expires_at datetime2(6) null, cancelled_at datetime2(6) null;
-- [grouped]
-- Messages of a group that were claimed in a run; see create_groups.
alter table {queue} add in_run bigint not null constraint df_{table}__in_run default 0;
drop index {table}__front on {queue};
create unique index {table}__front on {queue} (group_key, in_run) include (state) where {head};
-- [end]
-- [keep]
alter table {history} add outcome varchar(9) collate Latin1_General_100_BIN2 null;
-- [end]

-- name: set_version
-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update {catalogue} set schema_version = :schema_version where name = cast(:name as nvarchar(255));

-- name: upgrade_4_if_schedules
-- From schema version 3 to 4: the schedules are in {schedules}, which is no queue's table, and their names are bytes.
-- Only if there is such a table, and no queue has that name.
-- Locks: the table. In the transaction of the upgrade: a crash leaves what was there.
if object_id(N'{schedules}', N'U') is null
    create table {schedules} (
        name varbinary(1020) not null constraint pk_tq__schedules primary key nonclustered,
        last_due datetime2(6) not null
    );
if object_id(N'{prefix}tq_schedules', N'U') is not null
begin
    insert into {schedules} (name, last_due)
    select convert(varbinary(1020), old.name), old.last_due
    from {prefix}tq_schedules as old;
    drop table {prefix}tq_schedules;
end;

-- name: upgrade_4_if_staged
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- What bulk writes under way have staged is lost: they fail, and must be written again.
-- Locks: the table. In the transaction of the upgrade.
drop table if exists {queue}_staged;

-- name: upgrade_4_if_streams
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- Locks: the table, for a moment. In the transaction of the upgrade.
if object_id(N'{queue}_streams', N'U') is not null
begin
    exec sp_rename N'{prefix}pk_{table}_streams', N'pk_{table}__streams', N'OBJECT';
    exec sp_rename N'{queue}_streams', N'{table}__streams', N'OBJECT';
end;

-- name: upgrade_4_if_turns
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- Locks: the table, for a moment. In the transaction of the upgrade.
if object_id(N'{queue}_turns', N'U') is not null
begin
    exec sp_rename N'{prefix}pk_{table}_turns', N'pk_{table}__turns', N'OBJECT';
    exec sp_rename N'{queue}_turns', N'{table}__turns', N'OBJECT';
end;

-- name: upgrade_4_if_writers
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- Locks: the table, for a moment. In the transaction of the upgrade.
if object_id(N'{queue}_writers', N'U') is not null
begin
    exec sp_rename N'{prefix}pk_{table}_writers', N'pk_{table}__writers', N'OBJECT';
    exec sp_rename N'{queue}_writers', N'{table}__writers', N'OBJECT';
end;
