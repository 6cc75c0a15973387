-- {queue}_find_in_turn: lock up to p_n ready messages, one of each group in turn. Returns their ids as a JSON array, or
-- null. It looks at the first messages of each group, behind the group that was served last, and goes round once.
-- The session remembers the slot of that group in the variable @`tablequeue.{table}.ring`, and in
-- @`tablequeue.{table}.before` what it was before this call. A session begins at a random slot.
{create} procedure {queue}_find_in_turn(p_n bigint, p_now datetime(6), out p_ids longtext character set ascii)
begin
    declare wide bigint default least(p_n + 8, 64);
    declare seen, lap, at, until_slot, next_slot bigint default 0;
    declare some, looked longtext character set ascii;
    -- [group_limited]
    declare one_slot, given_groups, held longtext character set ascii;
    declare claims_then, room_then bigint;
    declare removing boolean default @`tablequeue.{table}.removes`;
    set given_groups = '[]';
    -- [end]
    set @`tablequeue.{table}.before` = coalesce(
        @`tablequeue.{table}.ring`, cast(conv(left(md5(uuid()), 16), 16, 10) as unsigned) >> 1
    );
    set looked = '[]';
    while lap < 2 do
        set at = if(lap = 0, @`tablequeue.{table}.before`, -1);
        set until_slot = if(lap = 0, 9223372036854775807, @`tablequeue.{table}.before`);
        groups: while seen < p_n + 8 do
            set next_slot = (
                select slot from (
                    {sql claim_ring/1 starts=at ends=until_slot look=1 high=null}
                ) as message
            );
            if next_slot is null then
                leave groups;
            end if;
            -- [group_limited]
            set one_slot = concat('[', next_slot, ']');
            select claims, room into claims_then, room_then from (
                {sql claim_rooms slots=one_slot removes=removing}
            ) as room_of_group;
            if room_then <= 0 then
                set at = next_slot;
                iterate groups;
            end if;
            set given_groups = json_array_append(given_groups, '$', json_array(next_slot, claims_then, room_then));
            set wide = least(p_n + 8, 64, room_then);
            -- [end]
            select json_arrayagg(json_array(number, seen, id, slot)) into some from (
                select row_number() over (order by id) as number, id, slot from (
                    {sql claim_ring/1 starts=next_slot-1 ends=next_slot look=wide high=null}
                ) as message
            ) as numbered;
            set looked = json_merge_preserve(looked, some), at = next_slot, seen = seen + 1;
        end while;
        set lap = lap + 1;
    end while;
    -- [group_limited]
    select json_arrayagg(slot) into held from (
        {sql lock_stripes by_group=given_groups}
    ) as stripe;
    set held = coalesce(held, '[]');
    select coalesce(json_arrayagg(json_array(number, place, message.id, message.slot)), '[]') into looked
    from json_table(looked, '$[*]' columns (
        number bigint path '$[0]', place bigint path '$[1]', id bigint path '$[2]', slot bigint path '$[3]'
    )) as message
    join json_table(held, '$[*]' columns (slot bigint path '$')) as stripe on stripe.slot = message.slot;
    {sql note_stripes slots=held};
    -- [end]
    select json_arrayagg(id) into some from (
        select id from json_table(looked, '$[*]' columns (
            number bigint path '$[0]', place bigint path '$[1]', id bigint path '$[2]'
        )) as message
        order by number, place
        limit 1000000
    ) as sorted;
    select json_arrayagg(id) into p_ids from (
        {sql claim_find/2 ids=some lease=null}
    ) as ready;
    set @`tablequeue.{table}.ring` = coalesce((
        select message.slot
        from json_table(looked, '$[*]' columns (
            number bigint path '$[0]', place bigint path '$[1]', id bigint path '$[2]', slot bigint path '$[3]'
        )) as message
        join json_table(coalesce(p_ids, '[]'), '$[*]' columns (id bigint path '$')) as chosen on chosen.id = message.id
        order by message.number desc, message.place desc
        limit 1
    ), @`tablequeue.{table}.before`);
end //
