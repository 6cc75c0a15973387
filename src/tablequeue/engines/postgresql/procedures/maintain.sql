-- Procedures of maintenance, which others call.

-- name: promote
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

-- name: sweep
-- {queue}_sweep: make messages ready that are due or abandoned. Returns their number, or null if the last sweep of this
-- session was less than p_every seconds ago. For pop and take.
-- No other consumer can claim these messages until the transaction commits. So they are at most p_n, and at most 1,000.
-- The session remembers the time of its last sweep in the setting tablequeue.{table}.
create or replace function {queue}_sweep(p_every float8, p_n integer, p_now timestamptz)
returns bigint language plpgsql as $$
    declare
        most integer := least(p_n, 1000);
        moved bigint := 0;
        message bigint;
        -- [dead_letter_to]
        swept bigint[];
        -- [end]
        clock float8 := extract(epoch from clock_timestamp());
        last_sweep float8 := nullif(current_setting('tablequeue.{table}', true), '');
    begin
        if p_now is null and clock < last_sweep + p_every then
            return null;
        end if;
        perform set_config('tablequeue.{table}', cast(clock as text), false);
        for message in
            {sql sweep n=most max_attempts=max_attempts since_sweep=null}
        loop
            moved := moved + 1;
            -- [dead_letter_to]
            swept := swept || message;
            -- [end]
        end loop;
        -- [expires]
        for message in
            {sql expire n=most}
        loop
            moved := moved + 1;
        -- [expires none dead_letter_to]
            swept := swept || message;
        -- [expires]
        end loop;
        -- [dead_letter_to]
        {sql move_dead ids=swept origin=origin};
        -- [grouped]
        moved := moved + {queue}_promote(most, p_now);
        -- [retention]
        {sql purge_history n=1000 age=retention};
        -- [end]
        return moved;
    end;
    $$;
