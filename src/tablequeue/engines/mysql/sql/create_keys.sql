-- The deduplication keys of a queue whose keys stay taken for a time: the message that took each, and until when. A row
-- is there from the push on, finished or not, until a sweep deletes it. The token names the call that took the key.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {keys} (
    dedup_key varbinary(1020) not null primary key,
    token char(32) character set ascii collate ascii_bin not null,
    id bigint,
    taken_until datetime(6) not null,
    key {table}__keys_until (taken_until)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: keys of {table}';
