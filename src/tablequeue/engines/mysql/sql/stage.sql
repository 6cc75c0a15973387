-- Stage one message of the write :write; the engine repeats it. Locks: none that another transaction waits for.
-- A crash leaves what was staged, which nobody sees, for a day.
insert into {staged} (
    write_id, attempt, part, place, payload, headers, priority, group_key, dedup_key, due_at
)
values (:write, :attempt, :part, :place, :payload, :headers, :priority, :group, :key, :due);
