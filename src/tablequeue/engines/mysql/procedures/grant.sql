grant execute on procedure {queue}_{verb} to {role};
