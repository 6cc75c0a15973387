-- The setting synchronous of this connection, if its commits are not flushed (2 is FULL, the default). Locks: none.
select synchronous from pragma_synchronous where synchronous < 2;
