-- What a queue whose messages expire has in addition: an index by which the sweep finds those whose time is over.
create index if not exists {table}__expires on {queue} (expires_at) where {waiting};
