-- What the texts of topics and subscriptions have in common.

-- name: finished_messages
-- The messages that a range has finished; see `create_ranges`.
(
    case
        when left_ids is not null then (select count(*) from openjson(left_ids))
        when finished_at is not null then messages
        else 0
    end - (select count(*) from openjson(apart_ids))
)

-- name: pieces
-- The ranges, each with the intervals of ids that it has: a row for each.
(
    select
        held.id as range_id, held.first_offset, held.last_offset, held.messages, held.consumer, held.popped_at,
        held.lease_until, held.finished_at, held.left_ids, held.apart_ids, {finished_messages} as finished,
        run.first_id + iif(run.first_offset < held.first_offset, held.first_offset - run.first_offset, 0) as low,
        iif(
            run.first_offset + run.last_id - run.first_id > held.last_offset,
            run.first_id + held.last_offset - run.first_offset, run.last_id
        ) as high
    from {ranges} as held
    inner join {runs} as run on run.first_offset <= held.last_offset
        and run.first_offset >= coalesce(
            (select max(before.first_offset) from {runs} as before where before.first_offset <= held.first_offset),
            0
        )
)

-- name: unclaimed
-- The intervals of ids that no range has, and that have messages after the position of the subscription; `messages` is
-- the number of them that are sure to be there.
(
    select low, high, high - low + 1 as messages
    from (
        select
            iif(run.first_offset < next.position, run.first_id + next.position - run.first_offset, run.first_id)
                as low,
            run.last_id as high
        from (
            select iif(last.position > first.position, last.position, first.position) as position
            from (select max(last_offset + 1) as position from {ranges} where id = (select max(id) from {ranges}))
                as last
            cross join (select min(first_offset) + 1 as position from {runs}) as first
        ) as next
        inner join {runs} as run on run.first_offset + run.last_id - run.first_id >= next.position
            and run.first_offset >= coalesce(
                (select max(before.first_offset) from {runs} as before where before.first_offset <= next.position),
                0
            )
    ) as after_it
    union all
    select max(last_id) + 1, cast(9223372036854775807 as bigint), 0 from {runs}
    union all
    select first_id, last_id, 0 from {holes}
)

-- name: those_they_hold
-- Of the messages @ids, as `given`, those that the ranges `held` have.
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_offset + given.id - run.first_id as message_offset
    from {runs} as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.message_offset between held.first_offset and held.last_offset

-- name: next_offsets
-- The next @n offsets of the log for the subscription, from @begins to @ends; up to @dropped the log has none any more.
select top (1) @begins = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @dropped = min(first_offset), @begins = iif(@begins > min(first_offset), @begins, min(first_offset) + 1)
from {runs} with (readcommittedlock);
select top (1) @ends = first_offset + last_id - first_id
from {runs} with (readpast, readcommittedlock)
order by first_offset desc;
if @ends > @begins + @n - 1
    set @ends = @begins + @n - 1

-- name: runs_with_them
-- The runs with offsets from @begins to @ends that the log still has.
where run.first_offset > @dropped
    and run.first_offset <= @ends
    and run.first_offset >= (
        select max(before.first_offset) from {runs} as before with (readcommittedlock)
        where before.first_offset <= @begins
    )
