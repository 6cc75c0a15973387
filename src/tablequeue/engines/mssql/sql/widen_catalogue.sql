-- Names of up to 255 characters, of all alphabets, which catalogues of schema version 4 cannot hold.
-- Under the creators' lock, in one transaction: a crash leaves the catalogue as it was.
alter table {catalogue} drop constraint pk_tq_queues;
alter table {catalogue} alter column name nvarchar(255) collate Latin1_General_100_BIN2 not null;
alter table {catalogue} add constraint pk_tq_queues primary key clustered (name);
