-- The rest of a fair queue.
drop table if exists {ring};
