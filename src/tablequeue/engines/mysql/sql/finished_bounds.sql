-- The lowest and the highest id of the messages that were finished from :since on and before :until.
-- Index: {table}__finished. Locks: none.
select min(id), max(id)
from {history}
where finished_at >= :since and finished_at < :until;
