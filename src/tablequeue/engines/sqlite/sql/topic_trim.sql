-- Delete messages that come before the offset :start: up to 10,000 of them, from the beginning of the log, whose pages
-- new messages fill. Index: the primary key. Locks: the database.
delete from {log} where id < min(:start, (select min(id) from {log}) + 10000);
select changes();
