-- Results of tasks, and chords: tasks whose results together are given to another one.

-- name: create_task_results
-- Like every DDL they commit by themselves; a crash leaves some of them.
create table if not exists {task_results} (
    id varchar(64) character set ascii collate ascii_bin primary key,
    body longblob not null,
    until datetime(6) not null,
    final_until datetime(6),
    key until (until)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: results of tasks';
create table if not exists {chords} (
    id varchar(64) character set ascii collate ascii_bin primary key,
    body longblob,
    size integer,
    added integer not null default 0,
    ended tinyint not null default 0,
    token varchar(32) character set ascii collate ascii_bin,
    lease_until datetime(6),
    until datetime(6) not null,
    key open (ended, id),
    key until (until)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: chords';
create table if not exists {chord_parts} (
    chord varchar(64) character set ascii collate ascii_bin not null,
    part varchar(64) character set ascii collate ascii_bin not null,
    place integer not null,
    body longblob not null,
    until datetime(6) not null,
    primary key (chord, part),
    key until (until)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: parts of chords';

-- name: store_result
-- Keep a result, unless a final one is there. An assignment sees the values before it: final_until comes last.
-- Index: the primary key. Locks: the row, until the end of the statement. A crash leaves all or nothing.
insert into {task_results} (id, body, until, final_until)
values (
    :key, :body, {now} + interval :expires second, if(:success, {now} + interval :expires second, null)
)
on duplicate key update
    body = if(final_until is null or final_until <= {now}, values(body), body),
    until = if(final_until is null or final_until <= {now}, values(until), until),
    final_until = if(final_until is null or final_until <= {now}, values(final_until), final_until);

-- name: store_part
-- Note that a part of a chord has returned, once, unless the chord has ended.
-- Index: the primary keys. Locks: the row. A crash leaves all or nothing.
insert into {chord_parts} (chord, part, place, body, until)
select :chord, :member, :place, :returned, {now} + interval :expires second
from (select 1) as one
where not exists (select 1 from {chords} where id = :chord and ended)
on duplicate key update place = {chord_parts}.place;

-- name: read_results
-- Index: the primary key. Locks: none.
select id, body from {task_results} where id in :keys and until > {now};

-- name: open_chord
-- Index: the primary keys. Locks: the rows. Each statement commits by itself: a crash may leave only the first.
delete from {chord_parts} where chord = :chord;
insert into {chords} (id, body, until) values (:chord, :body, {now} + interval :expires second)
on duplicate key update
    body = values(body), size = null, added = 0, ended = 0, token = null, lease_until = null, until = values(until);

-- name: size_chord
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
insert into {chords} (id, size, until) values (:chord, :number, {now} + interval :expires second)
on duplicate key update
    size = values(size), ended = 0, token = null, lease_until = null, until = values(until);

-- name: add_to_chord
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
insert into {chords} (id, added, until) values (:chord, 1, {now} + interval :expires second)
on duplicate key update added = added + 1;

-- name: claim_chord
-- Of two parts that return at the same time, the one that commits last sees both. Index: the primary keys.
-- Locks: the row, until the end of the statement. A crash leaves all or nothing.
update {chords} as chord
set token = :token, lease_until = {now} + interval :lease second
where id = :chord and not ended and {has_all_parts}
    and (token = :token or lease_until is null or lease_until <= {now});

-- name: complete_chords
-- Index: open. Locks: none.
select id, body from {chords} as chord
where id > :after_chord and ended = 0 and body is not null and {has_all_parts}
    and (lease_until is null or lease_until <= {now})
order by id
limit :n;

-- name: expire_results
-- Indexes: until of each table. Locks: the rows. Each statement commits by itself.
delete from {task_results} where until <= {now} limit :n;
delete from {chords} where id in (
    select id from (
        select id from {chords} as chord
        where until <= {now}
            and not exists (select 1 from {chord_parts} as part where part.chord = chord.id and part.until > {now})
        limit :n
    ) as expired
);
delete from {chord_parts} where (chord, part) in (
    select chord, part from (
        select chord, part from {chord_parts} as old
        where until <= {now}
            and not exists (select 1 from {chord_parts} as newer where newer.chord = old.chord and newer.until > {now})
        limit :n
    ) as expired
);
