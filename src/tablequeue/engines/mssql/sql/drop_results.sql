-- Drop the table of the results. In one transaction with the queue, where the database can.
drop table if exists {results};
