-- The slots of up to :n groups that have something ready, in turn. A process begins behind some of them.
-- Index: {table}__ready, one look for each group. Locks: none.
{ring_of_n}
select slot from ring where id is not null;
