-- {queue}_push: push one message, for producers. Returns its id. If a live message has its key: error TQ002, or with
-- p_on_conflict 'skip' null, or with 'return' the id of that message.
-- Locks: none that another transaction waits for, except pushes of the same key until the transaction ends.
-- A crash before the commit leaves nothing.
create or replace function {queue}_push(
    p_payload {payload_type},
    p_headers json default null,
    p_delay float8 default null,
    p_due timestamptz default null,
    p_priority integer default null,
    p_group text default null,
    p_key text default null,
    p_on_conflict text default 'raise',
    p_producer text default null,
    p_now timestamptz default null,
    p_expires float8 default null
) returns bigint language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $$
    declare
        pushed bigint;
        waited_for boolean;
        there text;
    begin
        perform {queue}_check(p_delay, p_due, p_priority, p_group, p_key, p_on_conflict, p_expires);
        p_priority := coalesce(p_priority, 0);
        p_producer := coalesce(p_producer, session_user);
        -- [due]
        if p_due is null then
            p_delay := coalesce(p_delay, 0);
        end if;
        -- [end]
        -- [strict]
        p_group := '';
        -- [end]
        loop
            {sql push within=true}
            into pushed, waited_for;
            exit when pushed is not null or p_on_conflict = 'skip';
            if p_on_conflict = 'raise' then
                raise exception using errcode = 'TQ002', detail = p_key,
                    message = 'A live message has the key ' || p_key || ' already.',
                    hint = 'Push with another key, or with p_on_conflict skip or return.';
            end if;
            {sql find_keys keys=array[p_key]}
            into there, pushed;
            exit when pushed is not null; -- else it was finished between the two statements: push again
        end loop;
        perform {queue}_notify(waited_for);
        return pushed;
    end;
    $$;
revoke all on function {queue}_push from public;
