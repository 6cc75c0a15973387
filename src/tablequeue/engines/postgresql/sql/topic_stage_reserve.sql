-- Reserve :n ids for messages of the write :write, in runs; and the time of these messages. See create_topic.
select first_id, last_id, cast({now} as text)
from {log}__reserve(:n, :write, :attempt, cast(:part as integer), cast(:place as bigint));
