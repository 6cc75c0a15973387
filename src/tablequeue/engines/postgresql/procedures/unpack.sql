-- {queue}_unpack: the messages of the pack that is held under p_token, if there is one, are rows of the queue again: a
-- consumer of the Python library claimed them, and some are to be finished by themselves. For complete, fail, release
-- and extend. Locks: the pack, until the transaction ends.
create or replace function {queue}_unpack(p_token uuid) returns void language plpgsql as $$
    declare
        unpacked integer;
    begin
        -- Mostly there is no pack: this costs 5 µs in each call that finishes messages, and 110 µs in an SQL function.
        if exists (select from {packs} where token = p_token) then
            {sql unpack}
            into unpacked;
        end if;
    end;
    $$;
revoke all on function {queue}_unpack from public;
