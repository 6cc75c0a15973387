-- Return those of :keys that messages of the queue have, with their ids. Index: {table}__key. Locks: none.
select dedup_key, id from {queue} where dedup_key in (select value from json_each(:keys)) and dedup_key is not null;
