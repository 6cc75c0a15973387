-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- Only if there is such a table, and no queue has that name.
-- Locks: the table, for a moment. In the transaction of the upgrade.
if object_id(N'{queue}_streams', N'U') is not null
begin
    exec sp_rename N'{prefix}pk_{table}_streams', N'pk_{table}__streams', N'OBJECT';
    exec sp_rename N'{queue}_streams', N'{table}__streams', N'OBJECT';
end;
