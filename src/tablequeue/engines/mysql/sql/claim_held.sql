-- In the packet of a claim with limits for each group: the messages of :rows, pairs of an id and a slot, whose stripes
-- @tq_held are locked, in the same order.
-- Locks: none.
select json_arrayagg(id) into @tq_found
from (
    select wanted.id
    from json_table(:rows, '$[*]' columns (
        number for ordinality, id bigint path '$[0]', slot bigint path '$[1]'
    )) as wanted
    join json_table(@tq_held, '$[*]' columns (slot bigint path '$')) as held on held.slot = wanted.slot
    order by wanted.number
    limit 1000000
) as sorted;
