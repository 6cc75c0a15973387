grant usage on schema {schema} to {role};
