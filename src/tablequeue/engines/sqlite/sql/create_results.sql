-- The results of finished messages, as JSON: what their consumers gave when they completed them. A row is there as long
-- as the message is in the history.
-- A trigger, and no foreign key: SQLite ignores these on connections that do not ask for them.
create table {results} (
    id integer primary key,
    result text not null check (json_valid(result))
) strict;
create trigger {table}__purged after delete on {history}
    begin
        delete from {results} where id = old.id;
    end;
