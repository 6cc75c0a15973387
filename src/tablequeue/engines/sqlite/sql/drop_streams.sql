-- Drop the tables that streams, bulk writes and moves made beside a queue, if there are any.
-- In one transaction with the queue: a crash leaves all or nothing.
drop table if exists {streams};
drop table if exists {staged};
drop table if exists {writers};
drop table if exists {moving};
drop table if exists {moved};
