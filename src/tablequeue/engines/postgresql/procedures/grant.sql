grant execute on function {queue}_{verb} to {role};
