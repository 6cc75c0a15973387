-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Under the creators' lock. Like every DDL it commits by itself; a crash leaves the table whole, or none.
create table if not exists {paused} (
    name varchar(64) character set ascii collate ascii_bin primary key,
    until datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the pauses';
