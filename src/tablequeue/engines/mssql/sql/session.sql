-- The settings of a connection of our own, made once.
-- Filtered indexes need the first six on and NUMERIC_ROUNDABORT off, of every writer (error 1934) and of every plan
-- that is to use one: SQL Server Agent and some FreeTDS clients come with QUOTED_IDENTIFIER off.
-- The isolation level is set because a pooled connection brings along whatever its last user had.
-- XACT_ABORT: an error, or a client that goes away in the middle of a batch, leaves no transaction open.
-- LOCK_TIMEOUT: a wait is given up after 5 s and tried again (see runner.RETRIES), 55 s in all.
-- LANGUAGE: one of the drivers passes on the words of an error and not its number; see refusals.py.
-- DEADLOCK_PRIORITY: if a call of the queue and a transaction of the application deadlock, the queue's call is the
-- victim, and is tried again.
set ansi_nulls, ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, quoted_identifier on;
set numeric_roundabort off;
set xact_abort, nocount on;
set transaction isolation level read committed;
set lock_timeout 5000;
set language us_english;
set deadlock_priority low;
