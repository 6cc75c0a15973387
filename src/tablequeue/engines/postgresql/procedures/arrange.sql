-- {queue}_arrange: in up to p_n groups whose turn came free, the next message becomes ready. For the other functions.
-- It runs in the transaction of their caller, who holds the new fronts of the groups, whichever they are, until it
-- commits: keep transactions around pop and take short. Of two that arrange the same group at once, the second waits
-- for the end of the first one's transaction, and then leaves it as that left it.
create or replace function {queue}_arrange(p_n integer, p_now timestamptz) returns bigint language plpgsql as $$
    declare
        arranged bigint;
        last_note bigint;
        waited_for boolean;
    begin
        {sql arrange noted=0 within=true} into arranged, last_note, waited_for;
        perform {queue}_notify(waited_for);
        return arranged;
    exception
        when unique_violation then
            return 0; -- nothing of this was done, and the notes are still there
    end;
    $$;
revoke all on function {queue}_arrange from public;
