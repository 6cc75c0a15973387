-- The names of all queues.
select name from {catalogue} order by name;
