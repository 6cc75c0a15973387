-- What the history of such a queue has in addition: an index by which stats counts the expired messages.
if not exists (select 1 from sys.indexes where name = '{table}__expired' and object_id = object_id('{history}'))
    create index {table}__expired on {history} (finished_at) include (outcome) where outcome = 'expired';
