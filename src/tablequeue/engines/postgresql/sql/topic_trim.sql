-- Drop the segments whose messages all come before the offset :start, and begin a new one if it is time; see
-- create_topic.
select {log}__trim(:start, :age, :n, {now});
