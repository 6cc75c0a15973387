-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
-- Locks: the table, for a moment. In the transaction of the upgrade.
if indexproperty(object_id(N'{queue}'), N'{table}_front', 'IndexID') is not null
    exec sp_rename N'{queue}.{table}_front', N'{table}__front', N'INDEX';
