-- Return those of the keys that are taken, with the ids of the messages that took them. :taken is a JSON array of
-- arrays with a key.
-- Index: the primary key. Locks: none.
select dedup_key, id from {keys}
where dedup_key in (select json_extract(value, '$[0]') from json_each(:taken)) and taken_until > {now};
