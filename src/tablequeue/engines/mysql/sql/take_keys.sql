-- Take those of the keys that are free, each for its seconds: :taken is a JSON array of [key, seconds or null], sorted.
-- Return them. A key is free if no message of the queue has it, and the time of the last message that had it is over.
-- Indexes: the primary key, {table}__key. Locks: a key waits for another transaction that is taking it.
-- An assignment sees the values before it: taken_until comes last. The second statement reads what the first has taken.
-- In one transaction with the push: a crash takes none. name_keys needs the time of the first statement.
set @tq_taken_at = {now};
insert into {keys} (dedup_key, token, taken_until)
select
    cast(given.dedup_key as binary), :token, {now} + interval coalesce(given.seconds, {key_for}) second
from json_table(:taken, '$[*]' columns (
    dedup_key varchar(255) character set utf8mb4 path '$[0]', seconds double path '$[1]'
)) as given
where not exists (select 1 from {queue} as there where there.dedup_key = cast(given.dedup_key as binary))
on duplicate key update
    id = if({keys}.taken_until <= {now}, null, {keys}.id),
    token = if({keys}.taken_until <= {now}, values(token), {keys}.token),
    taken_until = if({keys}.taken_until <= {now}, values(taken_until), {keys}.taken_until);
select convert(taken.dedup_key using utf8mb4)
from json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {keys} as taken on taken.dedup_key = cast(given.dedup_key as binary)
where taken.token = :token;
