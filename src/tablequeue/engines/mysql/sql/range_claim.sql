-- Claim the next range of up to :n messages under a new lease: one row for all of them; nothing if there are fewer than
-- :least, or if :token has a range already. Two round trips in autocommit: the insert, then the rows of the messages of
-- the range that it remembered.
-- The id is that of the last range plus one. If another session has claimed it meanwhile, that is a duplicate key, and
-- the insert is repeated.
-- Indexes: the primary keys, {table}__token. Locks: the new row. At READ COMMITTED, the insert reads without locks.
-- A consumer that dies leaves its range in progress; sweep sets its messages apart when the lease has expired.
insert into {ranges} (
    id, first_offset, last_offset, messages, ids_sum, pieces, token, consumer, popped_at, lease_until
)
with found as (
    select
        (select id + 1 from {ranges} order by id desc limit 1) as id,
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select first_offset + 1 from {runs} order by first_offset limit 1)
        ) as begins,
        (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1) as ends
), bounds as (
    select
        id, begins, least(ends, begins + :n - 1) as ends
    from found
    where ends - begins + 1 >= :least
        and not exists (select 1 from {ranges} force index ({table}__token) where token = :token)
), piece as (
    select
        bounds.id, begins, ends, first_offset, first_id + greatest(begins - first_offset, 0) as low,
        least(last_id, first_id + ends - first_offset) as high
    from bounds straight_join {runs} force index (primary) on first_offset between coalesce(
        (
            select first_offset from {runs}
            where first_offset <= (select last_offset + 1 from {ranges} order by id desc limit 1)
            order by first_offset desc limit 1
        ),
        0
    ) and ends
)
select
    last_insert_id(id), begins, ends, ends - begins + 1, sum((low + high) * (high - low + 1) div 2),
    concat('[', group_concat('[', low, ',', high, ']' order by first_offset), ']'),
    :token, :consumer, {now}, {now} + interval :lease second
from piece
where low <= high
group by id, begins, ends;
select
    {claimed of log with
        attempts = 1
        pushed_at = cast(log.pushed_at as char)
        popped_at = cast(popped_at as char)
        lease_until = cast(lease_until as char)
        priority = 0
        dedup_key = null
        due_at = null},
    place
from {ranges} as claimed force index (primary)
straight_join json_table(claimed.pieces, '$[*]' columns (
    place for ordinality, low bigint path '$[0]', high bigint path '$[1]'
)) as piece
straight_join {log} as log force index (primary) on log.id between piece.low and piece.high
where claimed.id = last_insert_id() and claimed.token = :token;
