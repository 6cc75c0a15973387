-- What the history of such a queue has in addition: an index by which stats counts the expired messages.
create index {table}__expired on {history} (finished_at) include (outcome) where outcome = 'expired';
