-- Up to 100 keys of what the :attempts of the write :write staged that messages have already, or that are there twice.
-- Locks: none.
-- Index: {table}__key; it reads all of {staged}.
select convert(dedup_key using utf8mb4) from (
    select dedup_key
    from {staged} as staged
    where write_id = :write and attempt in :attempts
        and exists (select 1 from {queue} as there where there.dedup_key = staged.dedup_key)
    union
    select dedup_key from {staged}
    where write_id = :write and attempt in :attempts and dedup_key is not null
    group by dedup_key having count(*) > 1
) as taken
order by taken.dedup_key
limit 100;
