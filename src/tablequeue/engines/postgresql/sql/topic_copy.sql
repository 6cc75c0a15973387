-- A bulk push: the messages come as COPY's text, with the ids that topic_reserve gave. All of them, or none.
copy {log} (id, payload, headers, producer, group_key, pushed_at) from stdin;
