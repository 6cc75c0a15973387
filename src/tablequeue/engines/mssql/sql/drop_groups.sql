-- What a grouped queue has besides its table: the notes of which groups to look at.
drop table if exists {turns};
