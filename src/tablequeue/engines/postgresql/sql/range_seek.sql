-- Let the next claim begin at :start. The row has no messages. Locks: none.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (
    cast(:start as bigint), cast(:start as bigint) - 1, 0, 0, {now}, {now}
);
