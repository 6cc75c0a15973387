-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{catalogue}', N'U') is null
    create table {catalogue} (
        name nvarchar(255) collate Latin1_General_100_BIN2 not null constraint pk_tq_queues primary key clustered,
        definition nvarchar(max) not null,
        schema_version int not null,
        created_at datetime2(6) not null
    );
