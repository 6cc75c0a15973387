-- The streams that read a queue: for each the batch that it claimed last, under which token, and the last one that is
-- completed. They differ by one at most. `epoch` counts its runs, and fences all but the last.
-- `failures`: of the messages of that batch, by id, those that a stage could not process, with the error; JSON.
-- Made when the first stream begins, under the creators' lock. Runs in one transaction: a crash leaves nothing.
create table if not exists {streams} (
    stream text primary key,
    epoch bigint not null,
    batch bigint not null default 0,
    completed bigint not null default 0,
    token text,
    claimed_at timestamptz,
    failures text not null default '{}'
);
