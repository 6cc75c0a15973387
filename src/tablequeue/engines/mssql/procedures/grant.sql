grant execute on {queue}_{verb} to {role};
