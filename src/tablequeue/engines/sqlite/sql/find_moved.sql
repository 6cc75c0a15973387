-- Those of :ids that have come from other databases: the id that each had, its token, and its id here.
-- Index: the primary key. Locks: none.
select id, token, new_id from {moved} where id in (select value from json_each(:ids));
