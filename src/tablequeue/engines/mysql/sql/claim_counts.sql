-- In the packet of a claim with limits: what it notes of the messages @tq_ids that it has locked. In each of the places
-- @tq_slots that it has locked one of them; how many of each group; and the slots of these.
-- Index: the primary key. Locks: none.
-- [concurrency]
select json_arrayagg(json_object('slot', place.slot, 'message', message.id)) into @tq_places
from json_table(@tq_slots, '$[*]' columns (number for ordinality, slot int path '$')) as place
join json_table(@tq_ids, '$[*]' columns (number for ordinality, id bigint path '$')) as message
    on message.number = place.number;
-- [end]
-- [group_limited]
select json_arrayagg(json_object('slot', slot, 'number', number)), json_arrayagg(slot) into @tq_groups, @tq_stripes
from (
    select message.slot, count(*) as number
    from json_table(@tq_ids, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id
    group by message.slot
) as spending;
-- [end]
