-- {queue}_claim: the rows of pop, in any order. A session sweeps once a second before it claims. If too few messages
-- were ready, it sweeps after that too, and claims again.
-- In a caller's transaction, only the caller can claim what it sweeps until the commit. A function cannot know whether
-- it runs in one. It assumes so if the transaction has written anything or is older than a second. Then it sweeps
-- no more messages than it is to claim.
-- It has no low-water mark, which only a process can keep: while an old snapshot is open, a claim walks the index
-- entries of all messages that were ready since.
create or replace function {queue}_claim(
    p_n integer, p_consumer text, p_lease float8, p_token uuid, p_now timestamptz
) returns table (
    {claimed_types}
) language plpgsql as $$
    #variable_conflict use_column
    declare
        claimed integer;
        within boolean := txid_current_if_assigned() is not null or now() < statement_timestamp() - interval '1 s';
        most integer := case when within then p_n else 1000 end;
        swept boolean := {queue}_sweep(1, most, p_now) is not null;
    begin
        for turn in 1..2 loop
            return query
                -- [at_least_once]
                {sql claim low_water=0};
                -- [end]
                -- [at_most_once]
                {sql take_keep low_water=0};
                -- [end]
            get diagnostics claimed = row_count;
            p_n := p_n - claimed;
            exit when p_n <= 0 or swept;
            swept := true;
            exit when {queue}_sweep(0, most, p_now) = 0;
        end loop;
    end;
    $$;
revoke all on function {queue}_claim from public;
