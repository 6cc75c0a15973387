-- What other procedures call, and rights and drops.

-- name: drop
if object_id(N'{queue}_{verb}', N'P') is not null drop procedure {queue}_{verb};

-- name: grant
grant execute on {queue}_{verb} to {role};
