-- The notes of a grouped queue's triggers.
drop table if exists {turns};
