-- {queue}_remove: the rows of take, in any order. It sweeps when {queue}_claim does, and no more than it is to remove.
create or replace function {queue}_remove(
    p_n integer, p_consumer text, p_token uuid, p_now timestamptz
) returns table (
    {claimed_types}
) language plpgsql as $$
    #variable_conflict use_column
    declare
        removed integer;
        swept boolean := {queue}_sweep(1, p_n, p_now) is not null;
    begin
        for turn in 1..2 loop
            return query
                -- [keep]
                {sql take_keep low_water=0};
                -- [end]
                -- [none]
                {sql take_none low_water=0};
                -- [end]
            get diagnostics removed = row_count;
            p_n := p_n - removed;
            exit when p_n <= 0 or swept;
            swept := true;
            exit when {queue}_sweep(0, p_n, p_now) = 0;
        end loop;
    end;
    $$;
revoke all on function {queue}_remove from public;
