-- Fail the messages of :ids that were delivered at most once under :token: they stay lost, and the error is kept.
-- Of several messages the first statement finds those that are held. For one, the number of rows is enough.
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them failed, or none.
select message.id
from {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
for update;
update {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
set errors = {errors_and_one},
    token = null;
