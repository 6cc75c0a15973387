-- Results of tasks, and chords: tasks whose results together are given to another one.

-- name: create_task_results
-- Runs in one transaction: a crash leaves nothing.
create table if not exists {task_results} (
    id text constraint tq__task_results_id primary key,
    body bytea not null,
    until timestamptz not null,
    final_until timestamptz
);
create index if not exists tq__task_results_until on {task_results} (until);
create table if not exists {chords} (
    id text constraint tq__chords_id primary key,
    body bytea,
    size integer,
    added integer not null default 0,
    ended boolean not null default false,
    token text,
    lease_until timestamptz,
    until timestamptz not null
);
create index if not exists tq__chords_open on {chords} (id) where not ended and body is not null;
create index if not exists tq__chords_until on {chords} (until);
create table if not exists {chord_parts} (
    chord text not null,
    part text not null,
    place integer not null,
    body bytea not null,
    until timestamptz not null,
    constraint tq__chord_parts_id primary key (chord, part)
);
create index if not exists tq__chord_parts_until on {chord_parts} (until);

-- name: store_result
-- Keep a result, unless a final one is there; and note the part of a :chord, unless it is null, it was noted before, or
-- the chord has ended. Those who wait are notified.
-- Index: the primary keys. Locks: the row, until the end of the statement. A crash leaves all or nothing.
with kept as (
    insert into {task_results} as there (id, body, until, final_until)
    values (
        :key, :body, {now} + cast(:expires as float8) * interval '1 second',
        case when cast(:success as boolean) then {now} + cast(:expires as float8) * interval '1 second' end
    )
    on conflict (id) do update
    set body = excluded.body, until = excluded.until, final_until = excluded.final_until
    where there.final_until is null or there.final_until <= {now}
), noted as (
    {note_part}
)
select {waited_for};

-- name: store_part
-- Note the part of a :chord whose result is not kept, as store_result does.
{note_part};

-- name: read_results
-- Index: the primary key. Locks: none.
select id, body from {task_results} where id = any(cast(:keys as text[])) and until > {now};

-- name: open_chord
-- Index: the primary keys. Locks: the rows. A crash leaves all or nothing.
with forgotten as (
    delete from {chord_parts} where chord = :chord
)
insert into {chords} (id, body, until)
values (:chord, :body, {now} + cast(:expires as float8) * interval '1 second')
on conflict (id) do update
set body = excluded.body, size = null, added = 0, ended = false, token = null, lease_until = null,
    until = excluded.until;

-- name: size_chord
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
insert into {chords} (id, size, until)
values (:chord, :number, {now} + cast(:expires as float8) * interval '1 second')
on conflict (id) do update
set size = excluded.size, ended = false, token = null, lease_until = null, until = excluded.until;

-- name: add_to_chord
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
insert into {chords} as chord (id, added, until)
values (:chord, 1, {now} + cast(:expires as float8) * interval '1 second')
on conflict (id) do update set added = chord.added + 1;

-- name: claim_chord
-- Of two parts that return at the same time, the one that commits last sees both. Index: the primary keys.
-- Locks: the row of a complete chord. A crash leaves all or nothing.
update {chords} as chord
set token = :token, lease_until = {now} + cast(:lease as float8) * interval '1 second'
where id = :chord and not ended and {has_all_parts}
    and (token = :token or lease_until is null or lease_until <= {now});

-- name: end_chord
-- Index: the primary keys. Locks: the rows. One transaction with what is sent then: a crash leaves all or nothing.
update {chords} set ended = true, body = null, token = null where id = :chord and token = :token;

-- name: expire_results
-- Indexes: tq__task_results_until, tq__chords_until, tq__chord_parts_until. Locks: the rows, but no locked ones.
delete from {task_results}
where id = any(array(select id from {task_results} where until <= {now} limit :n for update skip locked));
delete from {chords} where id = any(array(
    select id from {chords} as chord
    where until <= {now}
        and not exists (select from {chord_parts} as part where part.chord = chord.id and part.until > {now})
    limit :n
    for update skip locked
));
delete from {chord_parts} where (chord, part) in (
    select chord, part from {chord_parts} as old
    where until <= {now}
        and not exists (select from {chord_parts} as newer where newer.chord = old.chord and newer.until > {now})
    limit :n
);
