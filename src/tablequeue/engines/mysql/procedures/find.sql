-- {queue}_find: lock up to p_n ready messages, for {queue}_pop and {queue}_take. Returns their ids in the order of the
-- queue, as a JSON array, or null. A session sweeps once a second before it looks. If too few messages were ready, it
-- sweeps after that too, and looks again.
-- JSON_ARRAYAGG aggregates the rows of a derived table with a limit in their order, which only MariaDB can ask it for.
-- In a transaction of the caller's, not p_ours, it finds what that sees: see claim_find.sql.
{create} procedure {queue}_find(
    p_n bigint, p_ours boolean, p_now datetime(6), out p_ids longtext character set ascii
)
begin
    declare most bigint default if(p_ours, 1000, least(p_n, 1000));
    declare wide, seen, locked, moved bigint;
    declare looked longtext character set ascii;
    declare swept boolean;
    call {queue}_sweep(1, most, p_now, moved);
    set swept = moved is not null;
    turns: loop
        -- [in_order]
        set wide = 2 * p_n + 32; -- more than are wanted: others may have the first ones
        repeat
            select json_arrayagg(id), count(*) into looked, seen from (
                {sql claim_find/1 look=wide low_water=0}
            ) as ready;
            select json_arrayagg(id), count(*) into p_ids, locked from (
                {sql claim_find/2 ids=looked lease=null}
            ) as ready;
            set wide = wide * 8; -- what was locked is found and locked again, and counts
        until locked = p_n or seen < wide / 8 end repeat;
        -- [end]
        -- [fair]
        call {queue}_find_in_turn(p_n, p_now, p_ids);
        set locked = coalesce(json_length(p_ids), 0);
        -- [end]
        if locked = p_n or swept then
            leave turns;
        end if;
        set swept = true;
        call {queue}_sweep(0, most, p_now, moved);
        if moved = 0 then
            leave turns;
        end if;
    end loop;
end //
