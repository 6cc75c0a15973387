-- The deduplication keys of a queue whose keys stay taken for a time: the message that took each, and until when. A row
-- is there from the push on, finished or not, until a sweep deletes it. The token names the call that took the key.
-- Keys are stored as in create. In one transaction with the queue: a crash leaves nothing.
create table {keys} (
    dedup_key varbinary(1020) not null constraint pk_{table}__keys__key primary key nonclustered,
    token uniqueidentifier not null,
    id bigint null,
    taken_until datetime2(6) not null
);
create index {table}__keys_until on {keys} (taken_until);
