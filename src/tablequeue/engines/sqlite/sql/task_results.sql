-- Results of tasks, and chords: tasks whose results together are given to another one.

-- name: create_task_results
-- Runs in one transaction: a crash leaves nothing.
create table if not exists {task_results} (
    id text primary key,
    body blob not null,
    until integer not null,
    final_until integer
) strict;
create index if not exists tq__task_results_until on {task_results} (until);
create table if not exists {chords} (
    id text primary key,
    body blob,
    size integer,
    added integer not null default 0,
    ended integer not null default 0,
    token text,
    lease_until integer,
    until integer not null
) strict;
create index if not exists tq__chords_open on {chords} (id) where not ended and body is not null;
create index if not exists tq__chords_until on {chords} (until);
create table if not exists {chord_parts} (
    chord text not null,
    part text not null,
    place integer not null,
    body blob not null,
    until integer not null,
    primary key (chord, part)
) strict;
create index if not exists tq__chord_parts_until on {chord_parts} (until);

-- name: store_result
-- Keep a result, unless a final one is there.
-- Index: the primary key. Locks: the database. A crash leaves all or nothing.
insert into {task_results} (id, body, until, final_until)
values (
    :key, :body, {now} + cast(:expires * 1000000 as integer),
    case when :success then {now} + cast(:expires * 1000000 as integer) end
)
on conflict (id) do update
set body = excluded.body, until = excluded.until, final_until = excluded.final_until
where final_until is null or final_until <= {now};

-- name: store_part
-- Note that a part of a chord has returned, once, unless the chord has ended.
-- Index: the primary keys. Locks: the database. A crash leaves all or nothing.
insert into {chord_parts} (chord, part, place, body, until)
select :chord, :member, :place, :returned, {now} + cast(:expires * 1000000 as integer)
where not exists (select 1 from {chords} where id = :chord and ended)
on conflict (chord, part) do nothing;

-- name: read_results
-- Index: the primary key. Locks: none.
select id, body from {task_results} where id in (select value from json_each(:keys)) and until > {now};

-- name: open_chord
-- Index: the primary keys. Locks: the database. In one transaction: a crash leaves all or nothing.
delete from {chord_parts} where chord = :chord;
insert into {chords} (id, body, until)
values (:chord, :body, {now} + cast(:expires * 1000000 as integer))
on conflict (id) do update
set body = excluded.body, size = null, added = 0, ended = 0, token = null, lease_until = null,
    until = excluded.until;

-- name: size_chord
-- Index: the primary key. Locks: the database. A crash leaves all or nothing.
insert into {chords} (id, size, until)
values (:chord, :number, {now} + cast(:expires * 1000000 as integer))
on conflict (id) do update
set size = excluded.size, ended = 0, token = null, lease_until = null, until = excluded.until;

-- name: add_to_chord
-- Index: the primary key. Locks: the database. A crash leaves all or nothing.
insert into {chords} (id, added, until)
values (:chord, 1, {now} + cast(:expires * 1000000 as integer))
on conflict (id) do update set added = added + 1;

-- name: claim_chord
-- Index: the primary keys. Locks: the database. A crash leaves all or nothing.
update {chords} as chord
set token = :token, lease_until = {now} + cast(:lease * 1000000 as integer)
where id = :chord and not ended and {has_all_parts}
    and (token = :token or lease_until is null or lease_until <= {now});

-- name: expire_results
-- Indexes: tq__task_results_until, tq__chords_until, tq__chord_parts_until. Locks: the database.
delete from {task_results} where rowid in (select rowid from {task_results} where until <= {now} limit :n);
delete from {chords} where rowid in (
    select rowid from {chords} as chord
    where until <= {now}
        and not exists (select 1 from {chord_parts} as part where part.chord = chord.id and part.until > {now})
    limit :n
);
delete from {chord_parts} where rowid in (
    select rowid from {chord_parts} as old
    where until <= {now}
        and not exists (select 1 from {chord_parts} as newer where newer.chord = old.chord and newer.until > {now})
    limit :n
);
