-- Where the messages are that leave for a queue of another database, until they are there: no consumer finds them, and
-- only the move changes them. The token names the transaction that set them aside. A target has the table too: what
-- comes is in it within a transaction.
-- And what has come to this queue: the id that each message had, its token, and the id that it has here.
-- Made at the first such move, under the creators' lock. Runs in one transaction: a crash leaves nothing.
create table if not exists {moving} (
    id bigint primary key,
    state text not null,
    attempts integer not null,
    priority integer not null,
    token text not null,
    pushed_at timestamptz not null,
    due_at timestamptz,
    first_popped_at timestamptz,
    popped_at timestamptz,
    expires_at timestamptz,
    group_key text,
    dedup_key text,
    producer text,
    consumer text,
    headers json,
    errors jsonb,
    payload {payload_type} not null
);
create table if not exists {moved} (
    id bigint not null,
    token text not null,
    new_id bigint not null,
    primary key (id, token)
);
