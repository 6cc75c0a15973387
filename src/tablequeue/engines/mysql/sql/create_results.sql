-- The results of finished messages, as JSON: what their consumers gave when they completed them. A row is there as long
-- as the message is in the history.
-- A crash before the end leaves tables that are not in the catalogue: see create.
create table {results} (
    id bigint not null primary key,
    result longtext not null check (json_valid(result)),
    constraint {table}__results_of foreign key (id) references {history} (id) on delete cascade
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: results of {table}';
