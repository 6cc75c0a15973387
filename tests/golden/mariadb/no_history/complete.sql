-- A word after a colon is a parameter; with --values there are examples, for mariadb or mysql.

-- Finish those of :ids that are held under :token: they are deleted, for this queue keeps no history.
-- The first statement tells which of several they are. One alone is known by the number of rows: one round trip.
-- Index: the primary key. Locks: the rows. A crash finishes all or none.
select message.id
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails as message force index (primary) on message.id = given.id and token = :token
for update;
delete tq_emails
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails force index (primary) on tq_emails.id = given.id and token = :token;
