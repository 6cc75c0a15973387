-- Drop the tables that streams and bulk writes made beside a queue, if there are any.
-- Each commits by itself; what a crash leaves, the next drop of this name drops.
drop table if exists {streams};
drop table if exists {staged};
drop table if exists {writers};
