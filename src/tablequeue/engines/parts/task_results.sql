-- Parts of chords: tasks whose results together are given to another one.

-- name: has_all_parts
-- Whether the chord has all of its parts.
size + added <= (select count(*) from {chord_parts} as part where part.chord = chord.id)
