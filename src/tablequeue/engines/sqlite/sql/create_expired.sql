-- What the history of such a queue has in addition: an index by which stats counts the expired messages.
create index if not exists {table}__expired on {history} (finished_at) where outcome = 'expired';
