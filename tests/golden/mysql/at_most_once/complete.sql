-- A word after a colon is a parameter; with --values there are examples, for mariadb or mysql.

-- Acknowledge those of :ids that were delivered at most once under :token.
-- The first statement tells which of several they are. One alone is known by the number of rows: one round trip.
-- Index: the primary key of the history. Locks: the rows. A crash finishes all or none.
select message.id
from json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails_history as message force index (primary) on message.id = given.id and token = :token
for update;
update json_table(:ids, '$[*]' columns (id bigint path '$')) as given straight_join tq_emails_history as message force index (primary) on message.id = given.id and token = :token
set finished_at = coalesce(cast(:now as datetime(6)), utc_timestamp(6)), token = null;
