-- {queue}_promote: in up to p_n groups whose turn came free, the next message becomes ready. For the other functions.
-- It runs in the transaction of their caller, which keeps the new heads locked until it commits: keep transactions
-- around pop and take short. Of two that promote in the same group at once, the second waits for the end of the first
-- one's transaction, and then leaves it as that left it.
create or replace function {queue}_promote(p_n integer, p_now timestamptz) returns bigint language plpgsql as $$
    declare
        promoted bigint;
        last_note bigint;
        waited_for boolean;
    begin
        {sql promote noted=0 within=true} into promoted, last_note, waited_for;
        perform {queue}_notify(waited_for);
        return promoted;
    exception
        when unique_violation then
            return 0; -- nothing of this was done, and the notes are still there
    end;
    $$;
revoke all on function {queue}_promote from public;
