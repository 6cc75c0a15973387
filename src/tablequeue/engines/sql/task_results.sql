-- Results of tasks, and chords: tasks whose results together are given to another one.

-- name: forget_result
-- Index: the primary key. Locks: the row, on SQLite the database. A crash leaves all or nothing.
delete from {task_results} where id = :key;

-- name: chord_parts
-- Index: the primary key. Locks: none.
select body from {chord_parts} where chord = :chord order by place, part;

-- name: complete_chords
-- Index: tq__chords_open. Locks: none.
select id, body from {chords} as chord
where id > :after_chord and not ended and body is not null and {has_all_parts}
    and (lease_until is null or lease_until <= {now})
order by id
limit :n;

-- name: end_chord
-- Index: the primary keys. Locks: the rows, on SQLite the database. One transaction with what is sent then: a crash
-- leaves all or nothing.
update {chords} set ended = 1, body = null, token = null where id = :chord and token = :token;

-- name: forget_parts
-- Index: the primary key.
delete from {chord_parts} where chord = :chord;
