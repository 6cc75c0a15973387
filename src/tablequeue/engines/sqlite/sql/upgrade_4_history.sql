-- From schema version 3 to 4: what belongs to a queue's table is named {table}__part, which is no queue's table.
drop index if exists {table}_finished;
create index if not exists {table}__finished on {history} (finished_at);
