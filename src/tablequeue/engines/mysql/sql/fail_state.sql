-- The state that the fail before it, on the same connection, gave its message.
select elt(last_insert_id(), 'ready', 'scheduled', 'dead'{fourth});
