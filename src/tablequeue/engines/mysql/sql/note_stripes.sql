-- Count a claim in the stripes of :slots, which the transaction has locked.
-- Index: the primary key. Locks: the rows. In one transaction with the claim: after a crash none is counted.
update (
    select distinct slot & {last_stripe} as stripe
    from json_table(:slots, '$[*]' columns (slot bigint path '$')) as given
) as noted
straight_join {stripes} as stripe force index (primary) on stripe.stripe = noted.stripe
set stripe.claims = stripe.claims + 1;
