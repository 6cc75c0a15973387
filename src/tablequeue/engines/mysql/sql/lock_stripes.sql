-- Lock the stripes of :by_group: triples of a slot, the number of claims that was seen, and the room. If that number
-- has changed, what was counted may be out of date: such a group is left out.
-- Index: the primary key. Locks: the rows, until the transaction ends; locked rows are skipped.
select given.slot, given.claims, given.room
from json_table(:by_group, '$[*]' columns (
    slot bigint path '$[0]', claims bigint path '$[1]', room bigint path '$[2]'
)) as given
straight_join {stripes} as stripe force index (primary)
    on stripe.stripe = given.slot & {last_stripe} and stripe.claims = given.claims
for update skip locked;
