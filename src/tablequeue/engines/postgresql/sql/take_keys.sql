-- Take those of the keys that are free, each for its seconds: :taken is a JSON array of [key, seconds or null], sorted.
-- Return them. A key is free if no message of the queue has it, and the time of the last message that had it is over.
-- Indexes: the primary key, {table}__key. Locks: a key waits for another transaction that is taking it.
-- In one transaction with the push: a crash takes none.
insert into {keys} as taken (dedup_key, token, taken_until)
select
    given ->> 0, cast(:token as uuid),
    {now} + coalesce(cast(given ->> 1 as float8), {key_for}) * interval '1 second'
from jsonb_array_elements(cast(:taken as jsonb)) as given
where not exists (select from {queue} as there where there.dedup_key = given ->> 0)
order by given ->> 0
on conflict (dedup_key) do update
set token = excluded.token, id = null, taken_until = excluded.taken_until
where taken.taken_until <= {now}
returning dedup_key;
