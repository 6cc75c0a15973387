"""What things are: definitions, messages and their states. Imports nothing but errors."""
