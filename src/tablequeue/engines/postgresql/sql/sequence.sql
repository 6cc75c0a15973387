-- Give the messages that have become visible their offsets; see create_topic. Locks: an advisory one.
select {log}__sequence(true, true);
