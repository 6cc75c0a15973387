-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease: lock the first one, find the others without locks, lock those that no other transaction is changing, and mark
-- them. One packet, in which claim_limit comes first: @tq_head is the first one, @tq_run are all that were found,
-- @tq_due those that were locked, each with whether it is due, and @tq_ids those that are claimed: none that comes
-- after one that is locked by others, or not due. The run ends before one that is in progress in an open run.
-- With :run 1 no message of the group is promoted while one is in progress, so the group is closed until all of them
-- are finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {claim_index}, {table}__blocked, {table}__front, the primary key. Locks: the rows; locked ones are skipped.
-- A claim must lock the first message before it claims the others.
-- A crash before the commit claims none. They are read after it: see claimed.
select max(id) into @tq_head
from (
    select id
    from {queue} force index ({claim_index})
    where {claimable} and @tq_n > 0 and not json_contains(:passed, json_quote(convert(group_key using utf8mb4)))
    order by id
    limit 1
    for update skip locked
) as first;
select coalesce(@tq_head, max(id)) into @tq_head
from (
    select id
    from {queue} force index ({claim_index})
    where {claimable} and @tq_n > 0 and @tq_head is null
    order by id
    limit 1
    for update skip locked
) as first;
select json_merge_preserve(json_array(@tq_head), coalesce(json_arrayagg(id), '[]')) into @tq_run
from (
    select id, row_number() over (order by id) as place
    from (
        select message.id
        from {queue} as head straight_join {queue} as message force index ({table}__blocked)
            on message.group_key = head.group_key
        where head.id = @tq_head and message.state = 'blocked'{in_time_of_message}
            and message.id < (
                select coalesce(-max(held.in_run), 9223372036854775807)
                from {queue} as held force index ({table}__front)
                where held.front = head.group_key and held.in_run < 0
            )
        order by message.id
        limit :n
    ) as behind
) as numbered
where place < @tq_n;
select json_arrayagg(json_array(id, is_due)) into @tq_due
from (
    select message.id, coalesce(due_at <= {now}, true) as is_due
    from json_table(@tq_run, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id
    where state in ('ready', 'blocked')
    for update skip locked
) as locked;
select json_arrayagg(due.id), count(*) into @tq_ids, @tq_n
from json_table(@tq_due, '$[*]' columns (id bigint path '$[0]', is_due int path '$[1]')) as due
where due.id = @tq_head or due.id < coalesce((
    select min(behind.id)
    from json_table(@tq_run, '$[*]' columns (id bigint path '$')) as behind
    left join json_table(@tq_due, '$[*]' columns (id bigint path '$[0]', is_due int path '$[1]')) as got
        on got.id = behind.id
    where behind.id <> @tq_head and (got.id is null or not got.is_due)
), 9223372036854775807);
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = :popped_at,
    first_popped_at = coalesce(first_popped_at, :popped_at),
    lease_until = :lease_until,
    in_run = message.id * :run
where state in ('ready', 'blocked');
