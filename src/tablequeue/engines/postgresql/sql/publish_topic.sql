-- Make what the :attempts of the write :write staged visible, in the order of their parts, all at once. See
-- create_topic_functions.
-- One transaction with writer_advance: a crash publishes none.
select {log}__publish(:write, cast(:attempts as text[]));
