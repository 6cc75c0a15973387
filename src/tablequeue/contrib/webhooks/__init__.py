"""Webhooks: a handler that sends messages to HTTP endpoints, signed. See docs/webhooks.md."""

from tablequeue.contrib.webhooks.delivery import Endpoint, Webhooks

__all__ = ["Endpoint", "Webhooks"]
