-- The results of finished messages, as JSON: what their consumers gave when they completed them. A row is there as long
-- as the message is in the history.
-- Runs in one transaction: a crash leaves nothing.
create table {results} (
    id bigint constraint {table}__results_id primary key references {history} (id) on delete cascade,
    result json not null
);
