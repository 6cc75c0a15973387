-- {queue}_promote: promote the next message of up to p_n groups that have no head. For the other functions.
-- It runs in the transaction of their caller, which keeps the new heads locked until it commits: keep transactions
-- around pop and take short. If two transactions promote in the same group at once, the second one waits for the end of
-- the first one, and then keeps its head.
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
