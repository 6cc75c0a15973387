-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- Under the creator's lock. Like every DDL it commits by itself; a crash leaves the catalogue whole, or none.
create table if not exists {catalogue} (
    name varchar(255) character set utf8mb4 collate utf8mb4_bin primary key,
    definition text character set utf8mb4 collate utf8mb4_bin not null,
    schema_version int not null,
    created_at datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the catalogue';
