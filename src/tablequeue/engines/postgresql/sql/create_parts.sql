-- The notes of bulk writes under way. An upgrade to schema version 5 makes them anew. What bulk writes under way have
-- staged is lost then: they must be written again.
-- Runs in one transaction with create_topic: a crash leaves nothing.
drop table if exists {parts};
alter table {log} alter pushed_at set default statement_timestamp();
-- The ids that the tasks of bulk writes have reserved, and the tasks that have copied their messages there. They are
-- not in a run and not in a hole, and they are below the highest id. So no reader sees these messages.
create table {parts} (
    first_id bigint not null,
    last_id bigint not null,
    write_id text not null,
    attempt text not null,
    part integer not null,
    place bigint not null,
    copied boolean not null default false,
    staged_at timestamptz not null default statement_timestamp(),
    constraint {table}__part primary key (first_id)
);
