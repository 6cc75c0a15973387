-- Give the messages that have become visible their offsets; see create_topic.
select {log}__sequence(true, true);
