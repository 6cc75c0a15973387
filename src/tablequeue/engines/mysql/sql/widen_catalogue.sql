-- Names of up to 255 characters, of all alphabets, which catalogues of schema version 4 cannot hold.
-- Under the creators' lock. Like every DDL it commits by itself.
alter table {catalogue} modify name varchar(255) character set utf8mb4 collate utf8mb4_bin not null;
