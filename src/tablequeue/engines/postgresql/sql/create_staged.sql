-- Where the tasks of a bulk write from many processes put their messages before all of them are pushed at once
-- (publish), and the last batch of each writer that numbers its batches, so that a repeated one adds nothing.
-- A row is up to 10,000 messages, in arrays of one length; null is an array of nulls. Of rows of one message each,
-- 1,000,000 had to be sorted for 1.0 s and deleted for 0.5, of a write of 9. Not compressed: it is read once.
-- Unlogged: a crash of the server empties it, and publish finds that messages are missing.
-- No index: it holds the writes under way only, and each reads its own once.
-- Made at the first such write, under the creators' lock. Runs in one transaction: a crash leaves nothing.
do $$
    begin
        if to_regclass('{staged}') is null then
            create unlogged table {staged} (
                write_id text not null,
                attempt text not null,
                part integer not null,
                place bigint not null,
                payloads {staged_type}[] not null,
                headers json[],
                priorities integer[],
                groups text[],
                keys text[],
                dues timestamptz[],
                staged_at timestamptz not null default statement_timestamp()
            );
            alter table {staged} alter payloads set storage external;
        end if;
    end;
    $$;
create table if not exists {writers} (
    writer text primary key,
    batch bigint not null
);
