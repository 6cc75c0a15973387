-- Drop the tables that streams, bulk writes and moves made beside a queue, if there are any.
-- Each commits by itself; what a crash leaves, the next drop of this name drops.
drop table if exists {streams};
drop table if exists {staged};
drop table if exists {writers};
drop table if exists {moving};
drop table if exists {moved};
