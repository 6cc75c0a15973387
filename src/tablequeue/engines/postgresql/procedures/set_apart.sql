-- {queue}_set_apart: set the messages of p_ids apart, which ranges under p_token hold. For fail and release.
create or replace function {queue}_set_apart(
    p_ids bigint[], p_token uuid, p_attempts integer, p_delay float8, p_error text, p_now timestamptz
) returns void language plpgsql as $$
    declare
        message bigint;
        waited_for boolean;
    begin
        for message, waited_for in
            {sql range_set_apart max_attempts=max_attempts within=true}
        loop
            null;
        end loop;
        {sql range_mark};
        perform {queue}_notify(waited_for);
    end;
    $$;
revoke all on function {queue}_set_apart from public;
