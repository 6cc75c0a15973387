-- Move the next :n messages of the log to the queue of an ordered subscription. Returns their number. See
-- create_range_functions.
select {pump_range}(:n, {now});
