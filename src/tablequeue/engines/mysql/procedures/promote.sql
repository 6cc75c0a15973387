-- {queue}_promote: promote the next message of up to p_n groups that have no head. Returns the number of groups. For
-- the other procedures.
-- It runs in the transaction of their caller, which keeps the new heads locked until it commits: keep transactions
-- around pop and take short.
{create} procedure {queue}_promote(p_n bigint, p_now datetime(6), out p_promoted bigint)
begin
    declare found, notes, heads, closed longtext character set ascii;
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
            select json_arrayagg(id) into closed from (
                {sql retract/1 ids=heads}
            ) as head;
            if closed is not null then
                {sql retract/2 ids=closed};
                set p_promoted = p_promoted - row_count();
            end if;
        end if;
        {sql promote/5 ids=notes};
    end if;
end //
