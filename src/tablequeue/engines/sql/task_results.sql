-- Results of tasks, and chords: tasks whose results together are given to another one.

-- name: forget_result
-- Delete a result. Index: the primary key. Locks: the row, on SQLite the database. A crash leaves all or nothing.
delete from {task_results} where id = :key;

-- name: chord_parts
-- What the parts of a chord have returned, in their order. Index: the primary key. Locks: none.
select body from {chord_parts} where chord = :chord order by place, part;

-- name: complete_chords
-- Up to :n chords after :after_chord that are complete and not claimed: what completed them was killed before it could
-- claim them, or before it had ended them. Index: tq__chords_open. Locks: none.
select id, body from {chords} as chord
where id > :after_chord and not ended and body is not null and {has_all_parts}
    and (lease_until is null or lease_until <= {now})
order by id
limit :n;

-- name: end_chord
-- End a chord that is held under :token: it has no parts any more, and takes none.
-- Index: the primary keys. Locks: the rows, on SQLite the database. One transaction with what is sent then: a crash
-- leaves all or nothing.
update {chords} set ended = 1, body = null, token = null where id = :chord and token = :token;

-- name: forget_parts
-- Delete the parts of a chord that has ended, in the transaction of end_chord. Index: the primary key.
delete from {chord_parts} where chord = :chord;
