-- The messages of a bulk write come as COPY's text, with the ids that topic_stage_reserve gave. All of them, or none.
-- The server gives the time: to read it from the text for each message would take a tenth of the time.
copy {log} (id, payload, headers, group_key, producer) from stdin;
