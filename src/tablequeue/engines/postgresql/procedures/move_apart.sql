-- {queue}_move_apart: set the messages of ranges apart whose lease has expired. For pop.
-- [groups]
-- The subscription is ordered: move the next messages of the log to its queue, unless another session does it just now.
-- [end]
create or replace function {queue}_move_apart(p_now timestamptz) returns void language plpgsql as $$
    declare
        -- [groups]
        pumped integer;
        -- [end]
        -- [ranges]
        expired bigint;
        -- [end]
    begin
        -- [groups]
        {sql range_pump n=1000}
        into pumped;
        perform {queue}_promote(1000, p_now);
        -- [end]
        -- [ranges]
        for expired in
            {sql range_expired n=10}
        loop
            {sql range_expire id=expired max_attempts=max_attempts};
        end loop;
        -- [end]
    end;
    $$;
revoke all on function {queue}_move_apart from public;
