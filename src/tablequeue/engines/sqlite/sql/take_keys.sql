-- Take those of the keys that are free, each for its seconds: :taken is a JSON array of [key, seconds or null], sorted.
-- Return them. A key is free if no message of the queue has it, and the time of the last message that had it is over.
-- Indexes: the primary key, {table}__key. Locks: a key waits for another transaction that is taking it.
-- In one transaction with the push: a crash takes none.
insert into {keys} (dedup_key, token, taken_until)
select
    json_extract(value, '$[0]'), :token,
    {now} + cast(coalesce(json_extract(value, '$[1]'), {key_for}) * 1000000 as integer)
from json_each(:taken)
where not exists (select 1 from {queue} as there where there.dedup_key = json_extract(value, '$[0]'))
on conflict (dedup_key) do update
set token = excluded.token, id = null, taken_until = excluded.taken_until
where {keys}.taken_until <= {now}
returning dedup_key;
