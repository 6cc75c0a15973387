-- Drop the table of the keys. In one transaction with the queue, where the database can.
drop table if exists {keys};
