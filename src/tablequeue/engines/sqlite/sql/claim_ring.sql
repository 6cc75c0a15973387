-- The slot of the group that was served last. Index: none. Locks: none.
select served from {ring};
