"""Reports over messages: each is a function from DataFrame to DataFrame, in a file of its name."""
