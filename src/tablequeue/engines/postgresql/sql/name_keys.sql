-- Note the ids of the messages that took keys: :taken is a JSON array of [key, id]. A key without one is free again: a
-- message of the queue has got it meanwhile.
-- Index: the primary key. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
update {keys} as taken
set id = cast(given ->> 1 as bigint)
from jsonb_array_elements(cast(:taken as jsonb)) as given
where taken.dedup_key = given ->> 0;
delete from {keys} as taken
using jsonb_array_elements(cast(:taken as jsonb)) as given
where taken.dedup_key = given ->> 0 and taken.id is null;
