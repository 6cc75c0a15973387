-- What the history of such a queue has in addition: an index by which stats counts the expired messages.
alter table {history} add key {table}__expired (outcome, finished_at);
