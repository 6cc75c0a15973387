"""The HTTP server of the dashboard and of the SQS endpoint, and names of hosts."""
