-- {queue}_cancel: cancel the messages of p_ids, for producers; returns those that there are, and whether each was told.
-- A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop: if it fails, is
-- released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
create or replace function {queue}_cancel(
    p_ids bigint[],
    p_now timestamptz default null
) returns table (id bigint, told boolean)
language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    #variable_conflict use_column
    declare
        -- [at_least_once]
        packed uuid;
        -- [end]
        rest bigint[] := p_ids;
    begin
        for id, told in
            {sql cancel}
        loop
            rest := array_remove(rest, id);
            return next;
        end loop;
        -- [at_least_once]
        if cardinality(rest) > 0 then
            -- In a pack, or just unpacked.
            for packed in
                {sql packed_with ids=rest}
            loop
                perform {queue}_unpack(packed);
            end loop;
            return query
                {sql cancel ids=rest};
        end if;
        -- [end]
        -- [grouped]
        if now() = statement_timestamp() then
            perform {queue}_promote(1000, p_now);
        end if;
        -- [end]
    end;
    $$;
revoke all on function {queue}_cancel from public;
