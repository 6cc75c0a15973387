-- What the stored procedures have in common.

-- name: in_turns
-- The rest of a query that claims messages in turn: it notes the group that was served last, and returns the
-- messages.
), noted as (
    select set_config('tablequeue.{ring_of_session}', cast(slot as text), false)
    from (
        select slot from claimed
        order by row_number() over (partition by slot order by id) desc, slot <= served desc,
            slot desc
        limit 1
    ) as last
)
select
    {claimed_names}
from claimed
where exists (select 1 from noted)
order by row_number() over (partition by slot order by id), slot <= served, slot;
