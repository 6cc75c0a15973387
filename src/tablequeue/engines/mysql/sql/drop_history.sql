-- Drop a queue's history, if it keeps one: another queue may have a table of that name.
drop table if exists {history};
