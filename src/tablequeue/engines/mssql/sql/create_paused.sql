-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{paused}', N'U') is null
    create table {paused} (
        name varchar(128) collate Latin1_General_100_BIN2 not null constraint pk_tq__paused primary key clustered,
        until datetime2(6) not null
    );
