-- The schedules of periodic pushes: for each, the last time it was due that was pushed. Made with the first schedule.
-- Like every DDL it commits by itself; a crash leaves the table whole, or none.
create table if not exists {schedules} (
    name varchar(255) character set utf8mb4 collate utf8mb4_bin primary key,
    last_due datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the schedules';
