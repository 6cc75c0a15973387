-- The indexes of the queue and of its history. Locks: none.
select name from sqlite_schema where type = 'index' and tbl_name in ('{queue}', '{history}');
