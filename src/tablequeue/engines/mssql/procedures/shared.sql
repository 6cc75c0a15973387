-- What other procedures call, and rights and drops.

-- name: before_all
-- Filtered indexes need these two settings, which a procedure keeps from its creation.
set ansi_nulls, quoted_identifier on;

-- name: drop
if object_id(N'{queue}_{verb}', N'P') is not null drop procedure {queue}_{verb};

-- name: grant
grant execute on {queue}_{verb} to {role};
