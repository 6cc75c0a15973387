-- Delete up to :n messages from the history that were finished, and as many that were lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch, by their ids; locked rows are skipped.
(
    select id from {history} force index ({table}__finished)
    where finished_at <= {now} - interval :age second
    order by finished_at
    limit :n
)
union all
(
    select id from {history} force index ({table}__finished)
    where finished_at is null and popped_at <= {now} - interval :age second
    limit :n
);
select message.id
from {given} straight_join {history} as message force index (primary) on message.id = given.id
for update skip locked;
delete {history} from {given} straight_join {history} force index (primary) on {history}.id = given.id;
