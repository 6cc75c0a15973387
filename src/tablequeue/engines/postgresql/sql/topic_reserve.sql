-- For a bulk push: :n ids from the sequence in one row. In one transaction with topic_copy, which has its id before the
-- ids of the messages are given: see create_topic.
select array_agg(nextval('{log}__ids')) from generate_series(1, :n) where pg_current_xact_id() is not null;
