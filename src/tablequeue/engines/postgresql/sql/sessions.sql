-- Sessions: the settings of our own, and the schema of the queues.

-- name: session
-- The settings of a session of our own, made once, in the round trip that asks for its isolation level, its number and
-- the schema of the queues. Behind a pooler its number is not :session, and nothing is set: it is not ours to change.
-- What the server must not do for each call: compile a read of a topic's log, which takes longer than the read; plan a
-- statement again, which takes longer than a claim, because it is cheaper by a little for the values of this call; read
-- a table as a whole, by a plan of the time when it had one page.
-- What would change a statement: nulls in arrays that are read as words, backslashes in literals, `= null` that holds.
-- The time-outs: the server ends a session whose client is suspended or cut off in the middle of a transaction, or of
-- an answer (over TCP). Until then others may wait for its locks. Half of the default lease, after which they would get
-- its messages anyway. Settings of the server, the role or the URL's :options are kept.
select
    current_setting('default_transaction_isolation'), pg_backend_pid(), {place},
    case when pg_backend_pid() = :session then array[
        set_config('jit', 'off', false),
        set_config('enable_seqscan', 'off', false),
        set_config('plan_cache_mode', 'force_generic_plan', false),
        set_config('array_nulls', 'on', false),
        set_config('standard_conforming_strings', 'on', false),
        set_config('transform_null_equals', 'off', false),
        {absence name=idle_in_transaction_session_timeout},
        {absence name=tcp_user_timeout}
    ] end;

-- name: place
-- The schema of the queues: that of the catalogue which the session sees, or else the one where it would make one.
-- A caller's session tells, if it comes before all of our own. Afterwards each statement names the schema.
select {place};
