-- What a queue whose messages expire has in addition: an index by which the sweep finds those whose time is over.
create index {table}__expires on {queue} (expires_at) where {waiting};
