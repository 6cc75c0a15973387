-- Stage up to 10,000 messages of the write :write, which come as arrays. JSON is checked here, in the task.
-- Locks: none that another transaction waits for. A crash leaves what was staged, which nobody sees, for a day.
insert into {staged} (write_id, attempt, part, place, payloads, headers, priorities, groups, keys, dues)
values (
    :write, :attempt, :part, :place, cast(:payload as {staged_type}[]), cast(:headers as json[]),
    cast(:priority as integer[]), cast(:group as text[]), cast(:key as text[]), cast(:due as timestamptz[])
);
