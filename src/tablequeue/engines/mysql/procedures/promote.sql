-- {queue}_promote: in up to p_n groups whose turn came free, the next message becomes ready; in how many. For the
-- other procedures.
-- It runs in the transaction of their caller, which keeps the new heads locked until it commits: keep transactions
-- around pop and take short.
{create} procedure {queue}_promote(p_n bigint, p_now datetime(6), out p_promoted bigint)
begin
    declare found, notes, heads longtext character set ascii;
    set p_promoted = 0;
    select json_arrayagg(id) into found from (
        {sql promote/1}
    ) as noted;
    if found is not null then
        select json_arrayagg(id) into notes from (
            {sql promote/2 ids=found}
        ) as noted;
    end if;
    if notes is not null then
        with lowest (id) as (
            {sql promote/3 ids=notes}
            limit 1000 -- which keeps MariaDB from merging it with what is around it: the second call would fail
        )
        select json_arrayagg(id) into heads from lowest;
        if heads is not null then
            {sql promote/4 ids=heads};
            set p_promoted = row_count();
        end if;
        {sql promote/5 ids=notes};
    end if;
end //
