-- Drop what a grouped queue has beside its table: the notes of its triggers, and its functions.
drop table if exists {turns};
drop function if exists {turn}();
drop function if exists {queue}__closed(text[]);
