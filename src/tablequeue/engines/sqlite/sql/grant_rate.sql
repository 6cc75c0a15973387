-- Spend the rate of up to :n messages for the claim or the take after it in the transaction, which claims as many as
-- `granted` says: no more than are ready, and, unless it :removes them, than have a place. Nothing is written while
-- nothing is granted.
-- Index: {table}__ready. Locks: the database. A rollback gives it back, a crash before the commit too.
update {rate}
set granted = given.number,
    spent_until = case when given.number > 0 then max(spent_until, {now}) + given.number * step else spent_until end
from (
    select count(*) as number
    from (
        select 1 from {queue}
        where {claimable} and (:high is null or id <= :high)
        limit max(0, min(
            case when :removes then :n else {placed} end,
            (select burst - (max(0, spent_until - {now}) + step - 1) / step from {rate})
        ))
    )
) as given
where given.number > 0 or granted > 0;
