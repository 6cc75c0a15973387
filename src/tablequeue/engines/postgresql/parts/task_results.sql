-- Parts of chords: tasks whose results together are given to another one.

-- name: note_part
-- Notes that a part has returned, once, unless its chord has ended.
insert into {chord_parts} (chord, part, place, body, until)
select
    cast(:chord as text), cast(:member as text), cast(:place as integer), cast(:returned as bytea),
    {now} + cast(:expires as float8) * interval '1 second'
where cast(:chord as text) is not null and not exists (select from {chords} where id = :chord and ended)
on conflict (chord, part) do nothing
