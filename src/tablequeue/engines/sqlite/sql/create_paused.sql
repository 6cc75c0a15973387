-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Locks: the database. A crash leaves nothing.
create table if not exists {paused} (
    name text primary key,
    until integer not null
) strict, without rowid;
