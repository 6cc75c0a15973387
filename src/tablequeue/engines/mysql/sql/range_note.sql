-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset :start.
-- Nothing is noted while ranges are in progress, which are counted. This changes the row that range_wait has added.
-- Indexes: {table}__lease, the primary key. Locks: the row.
update {ranges} as noted
join (
    select count(*) as ranges from {ranges} force index ({table}__lease) where lease_until is not null
) as open on open.ranges = 0
set messages = :start - noted.first_offset,
    last_offset = :start - 1,
    consumer = :consumer,
    popped_at = {now} - interval :age second,
    finished_at = {now}
where noted.id = last_insert_id() and noted.first_offset < :start;
select count(*) from {ranges} force index ({table}__lease) where lease_until is not null;
