-- Give the messages that have become visible their offsets; see create_topic_functions.
select {log}__sequence(true, true);
