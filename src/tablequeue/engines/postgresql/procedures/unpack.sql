-- {queue}_unpack: the messages of the pack that is held under p_token, if there is one, are rows of the queue again: a
-- consumer of the Python library claimed them, and some are to be finished by themselves. For complete, fail, release
-- and extend. Locks: the pack, until the transaction ends.
create or replace function {queue}_unpack(p_token uuid) returns integer language sql as $$
    {sql unpack}
    $$;
revoke all on function {queue}_unpack from public;
