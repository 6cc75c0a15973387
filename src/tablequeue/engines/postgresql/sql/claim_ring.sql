-- The slot of a random one of up to :n groups that have something ready, in turn. A process begins behind it.
-- Index: {table}__ready, one look for each group. Locks: none.
{ring_of_n}
select slot from ring where id is not null order by random() limit 1;
