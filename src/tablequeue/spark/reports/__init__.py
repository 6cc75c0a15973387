"""Reports on messages: each is a function from DataFrame to DataFrame, in a file with its name."""
