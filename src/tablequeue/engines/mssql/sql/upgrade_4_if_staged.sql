-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
-- Only if there is such a table, and no queue has that name.
-- What bulk writes staged that are under way is lost: they fail, and are to be written again.
-- Locks: the table. In the transaction of the upgrade.
drop table if exists {queue}_staged;
