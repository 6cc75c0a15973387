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
