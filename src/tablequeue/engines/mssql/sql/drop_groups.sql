-- Drop what a grouped queue has beside its table: the notes of which groups to look at.
drop table if exists {turns};
