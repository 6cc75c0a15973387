-- Return those of :keys that messages of the queue have, with their ids. Index: {table}__key.
-- A locking read, for it must see what a duplicate-key error spoke of: in a transaction that is REPEATABLE READ a
-- plain one would not. Locks: the entries of the index, shared; a claim does not change them.
select convert(dedup_key using utf8mb4), id
from {queue} force index ({table}__key) where dedup_key in :keys lock in share mode;
