-- Drop what a grouped queue has beside its table: the notes of its triggers, and their function.
drop table if exists {turns};
drop function if exists {turn}();
