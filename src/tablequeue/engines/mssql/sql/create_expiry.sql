-- What a queue whose messages expire has in addition: an index by which the sweep finds those whose time is over.
if not exists (select 1 from sys.indexes where name = '{table}__expires' and object_id = object_id('{queue}'))
    create index {table}__expires on {queue} (expires_at) include (state) where {waiting};
