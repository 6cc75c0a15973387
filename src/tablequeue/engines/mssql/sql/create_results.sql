-- The results of finished messages, as JSON: what their consumers gave when they completed them. A row is there as long
-- as the message is in the history.
-- The purge of the history deletes it: a table that OUTPUT ... INTO writes may have no trigger and no foreign key.
create table {results} (
    id bigint not null constraint pk_{table}__results primary key clustered,
    result nvarchar(max) not null
);
