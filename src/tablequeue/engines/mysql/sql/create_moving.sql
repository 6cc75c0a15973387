-- Where the messages are that leave for a queue of another database, until they are there: no consumer finds them, and
-- only the move changes them. The token names the transaction that set them aside. A target has the table too: what
-- comes is in it within a transaction.
-- And what has come to this queue: the id that each message had, its token, and the id that it has here.
-- Made at the first such move. A DDL commits by itself: a crash leaves a table or none.
create table if not exists {moving} (
    id bigint not null primary key,
    state varchar(11) character set ascii collate ascii_bin not null,
    attempts int not null,
    priority int not null,
    token char(32) character set ascii collate ascii_bin not null,
    pushed_at datetime(6) not null,
    due_at datetime(6),
    first_popped_at datetime(6),
    popped_at datetime(6),
    expires_at datetime(6),
    group_key varbinary(1020),
    dedup_key varbinary(1020),
    producer varchar(255),
    consumer varchar(255),
    headers longtext,
    errors longtext,
    payload {staged_type} not null
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: moving of {table}';
create table if not exists {moved} (
    id bigint not null,
    token char(32) character set ascii collate ascii_bin not null,
    new_id bigint not null,
    primary key (id, token)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: moved of {table}';
