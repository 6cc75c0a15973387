-- The tokens of the packs that have messages of :ids. Index: none: there is a pack for each large claim in progress.
-- Locks: none.
select token from {packs} where ids && cast(:ids as bigint[]);
