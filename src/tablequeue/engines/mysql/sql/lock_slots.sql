-- Lock up to :n of the places that were free. One whose note has changed since the look may have been filled.
-- Index: the primary key. Locks: the rows, until the transaction ends; locked rows are skipped.
select place.slot
from json_table(:slots, '$[*]' columns (
    slot int path '$[0]', message bigint path '$[1]',
    token char(32) character set ascii collate ascii_bin path '$[2]'
)) as free
straight_join {slots} as place force index (primary)
    on place.slot = free.slot and place.message = free.message and place.token = free.token
limit :n
for update skip locked;
