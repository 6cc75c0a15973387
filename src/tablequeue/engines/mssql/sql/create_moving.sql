-- Where the messages are that leave for a queue of another database, until they are there: no consumer finds them, and
-- only the move changes them. The token names the transaction that set them aside. A target has the table too: what
-- comes is in it within a transaction.
-- And what has come to this queue: the id that each message had, its token, and the id that it has here.
-- No lock escalation: it would stop other moves.
-- Made at the first such move, under the creators' lock. Runs in one transaction: a crash leaves nothing.
if object_id(N'{moving}', N'U') is null
begin
    create table {moving} (
        id bigint not null constraint pk_{table}__moving primary key clustered,
        state varchar(11) collate Latin1_General_100_BIN2 not null,
        attempts int not null,
        priority int not null,
        token char(32) collate Latin1_General_100_BIN2 not null,
        pushed_at datetime2(6) not null,
        due_at datetime2(6) null,
        first_popped_at datetime2(6) null,
        popped_at datetime2(6) null,
        expires_at datetime2(6) null,
        group_key varbinary(1020) null,
        dedup_key varbinary(1020) null,
        producer nvarchar(512) null,
        consumer nvarchar(512) null,
        headers nvarchar(max) null,
        errors nvarchar(max) null,
        payload {payload_type} not null
    );
    alter table {moving} set (lock_escalation = disable);
    create table {moved} (
        id bigint not null,
        token char(32) collate Latin1_General_100_BIN2 not null,
        new_id bigint not null,
        constraint pk_{table}__moved primary key clustered (id, token)
    );
    alter table {moved} set (lock_escalation = disable);
end;
