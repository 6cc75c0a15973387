-- Messages lose those of the keys whose time is over: :taken is a JSON array of [key, ...]. A push that takes them can
-- follow. The messages stay as they are otherwise.
-- Indexes: {table}__key, the primary key of {keys}. Locks: the database.
-- In one transaction with the push: a crash changes nothing.
update {queue} set dedup_key = null
where dedup_key in (select json_extract(value, '$[0]') from json_each(:taken))
    and not exists (
        select 1 from {keys} as taken where taken.dedup_key = {queue}.dedup_key and taken.taken_until > {now}
    );
