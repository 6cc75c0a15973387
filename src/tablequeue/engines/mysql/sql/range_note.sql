-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset :start.
-- Nothing is noted while ranges are in progress, which are counted. This changes the row that range_wait has added.
-- Indexes: {table}__lease, the primary keys. Locks: the row.
update {ranges} as noted
join (
    select count(*) as ranges from {ranges} force index ({table}__lease) where lease_until is not null
) as open on open.ranges = 0
set messages = :start - noted.first_offset,
    last_offset = :start - 1,
    consumer = :consumer,
    popped_at = {now} - interval :age second,
    finished_at = {now},
    pieces = (
        select concat('[', group_concat(
            '[', first_id + greatest(noted.first_offset - run.first_offset, 0), ',',
            least(last_id, first_id + :start - 1 - run.first_offset), ']' order by run.first_offset
        ), ']')
        from {runs} as run
        where run.first_offset < :start and run.first_offset + last_id - first_id >= noted.first_offset
    )
where noted.id = last_insert_id() and noted.first_offset < :start;
select count(*) from {ranges} force index ({table}__lease) where lease_until is not null;
