"""What the verbs do, engine-neutral: one noun a file. Each runs an engine's operation and reads its rows."""
