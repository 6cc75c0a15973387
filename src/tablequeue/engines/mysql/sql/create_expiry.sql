-- What a queue whose messages expire has in addition: an index by which the sweep finds those whose time is over.
-- There are no partial indexes here: the state comes first.
alter table {queue} add key {table}__expires (state, expires_at);
