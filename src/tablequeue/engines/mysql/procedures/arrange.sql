-- {queue}_arrange: in up to p_n groups whose turn came free, the next message becomes ready; in how many. For the
-- other procedures.
-- It runs in the transaction of their caller, who holds the new fronts of the groups, whichever they are, until it
-- commits: keep transactions around pop and take short.
{create} procedure {queue}_arrange(p_n bigint, p_now datetime(6), out p_arranged bigint)
begin
    declare found, notes, fronts longtext character set ascii;
    set p_arranged = 0;
    select json_arrayagg(id) into found from (
        {sql arrange/1}
    ) as noted;
    if found is not null then
        select json_arrayagg(id) into notes from (
            {sql arrange/2 ids=found}
        ) as noted;
    end if;
    if notes is not null then
        with lowest (id) as (
            {sql arrange/3 ids=notes}
            limit 1000 -- which keeps MariaDB from merging it with what is around it: the second call would fail
        )
        select json_arrayagg(id) into fronts from lowest;
        if fronts is not null then
            {sql arrange/4 ids=fronts};
            set p_arranged = row_count();
        end if;
        {sql arrange/5 ids=notes};
    end if;
end //
