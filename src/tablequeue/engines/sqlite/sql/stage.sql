-- Stage one message of the write :write; the engine repeats it. Locks: the database.
-- After a crash the staged messages stay for a day, invisible.
insert into {staged} (
    write_id, attempt, part, place, payload, headers, priority, group_key, dedup_key, due_at, staged_at
)
values (:write, :attempt, :part, :place, :payload, :headers, :priority, :group, :key, :due, {now});
