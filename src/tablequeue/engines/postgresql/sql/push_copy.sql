-- A bulk push: the messages come as COPY's text, with the ids that push_reserve gave. All of them, or none.
copy {queue} (id, payload, headers, producer, priority, group_key, pushed_at, due_at, state{expires_at}) from stdin;
