-- How a commit of this connection is flushed, where it is not (2 is FULL, the default). Locks: none.
select synchronous from pragma_synchronous where synchronous < 2;
