-- From schema version 5 to 6: a message without a group, which no trigger made ready, is in the group without a name.
-- Index: {table}__blocked. Locks: the database. Runs in one transaction: a crash leaves version 5.
update {queue} set group_key = '', state = 'blocked' where state = 'blocked' and group_key is null;
