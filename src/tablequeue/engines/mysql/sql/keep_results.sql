-- Keep the :result of the message :id, which this transaction has completed.
-- Index: the primary key. A crash before the commit keeps nothing, and completes nothing.
insert into {results} (id, result) values (:id, :result);
