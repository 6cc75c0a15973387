-- The indexes of the queue, its history and its ranges. Locks: none.
select name from sqlite_schema where type = 'index' and tbl_name in ('{queue}', '{history}', '{ranges}', '{keys}');
