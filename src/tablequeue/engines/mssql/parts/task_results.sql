-- Parts of chords: tasks whose results together are given to another one.

-- name: has_all_parts
-- Whether the chord has all of its parts. Parts that are not committed are passed over: each looks after its commit.
chord.size + chord.added <= (
    select count(*)
    from {chord_parts} as part with (rowlock, readpast, readcommittedlock)
    where part.chord = chord.id
)
