-- Reserve :n ids for messages of the write :write. Returns runs of them, in their order. See create_topic_functions.
select first_id, last_id
from {log}__reserve(:n, :write, :attempt, cast(:part as integer), cast(:place as bigint));
