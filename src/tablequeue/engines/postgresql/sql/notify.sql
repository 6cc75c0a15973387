-- Notify waiting consumers of the queue at the commit of this transaction; do nothing if none waits. For use after a
-- COPY. :within a caller's transaction no consumer is notified here: the transaction may last long, and NOTIFY is
-- forbidden in one that will be prepared. Then the result tells whether consumers wait. They are notified at once from
-- another connection. The lock taken here shows them that a push is under way, and they poll until it has ended.
-- Locks: advisory ones, for which another transaction waits only for the length of a test.
select {waited_for};
