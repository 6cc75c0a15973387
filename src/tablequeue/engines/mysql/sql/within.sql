-- Calls in a caller's transaction.

-- name: isolation_level
-- The isolation level of the session, which a transaction has unless SET TRANSACTION gave it another one; the server
-- tells nobody without the right PROCESS that of a transaction. Each server has its own name for it.
-- Locks: none.
select /*!50799 @@transaction_isolation */ /*M!100600 @@tx_isolation */;
