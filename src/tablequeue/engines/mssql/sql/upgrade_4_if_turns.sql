-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- Locks: the table, for a moment. In the transaction of the upgrade.
if object_id(N'{queue}_turns', N'U') is not null
begin
    exec sp_rename N'{prefix}pk_{table}_turns', N'pk_{table}__turns', N'OBJECT';
    exec sp_rename N'{queue}_turns', N'{table}__turns', N'OBJECT';
end;
