-- Drop the segments whose messages all come before the offset :start, and begin a new one if it is time; see
-- create_topic_functions.
select {log}__trim(:start, :age, :n, {now}, :consumed);
