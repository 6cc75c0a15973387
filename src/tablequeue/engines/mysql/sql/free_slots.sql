-- Up to :look of the places whose message is no longer in progress, with their notes. A look without locks, before the
-- claim begins. At random, so that claims at once do not look for the same ones.
-- As many of the free places as closed ones are occupied are passed over, the first ones. Claims that look at different
-- times agree: each leaves so many free places below those that it takes.
-- Index: the primary key. Locks: none.
select slot, message, token
from {slots} as place
where not exists (
    select 1 from {queue} as message force index (primary)
    where message.id = place.message and message.token = place.token and message.state = 'in_progress'
) and slot >= case
    when exists (select 1 from {slots} where slot < 0) then (
        select min(numbered.slot)
        from (
            select place.slot, row_number() over (order by place.slot) as number
            from {slots} as place
            where place.slot > 0 and not exists (
                select 1 from {queue} as message force index (primary)
                where message.id = place.message and message.token = place.token and message.state = 'in_progress'
            )
        ) as numbered
        where numbered.number > (
            select count(*)
            from {slots} as closed
            straight_join {queue} as message force index (primary)
                on message.id = closed.message and message.token = closed.token
            where closed.slot < 0 and message.state = 'in_progress'
        )
    )
    else 1
end
order by rand()
limit :look;
