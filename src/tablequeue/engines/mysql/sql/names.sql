-- The names and entries of all queues, topics and subscriptions.
select name, definition from {catalogue};
