-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Under the creators' lock. A crash leaves nothing.
create table if not exists {paused} (
    name text constraint tq__paused_name primary key,
    until timestamptz not null
);
