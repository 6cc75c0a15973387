"""Integrations with other tools: a folder for each, with an extra of the same name. Nothing else imports them."""
