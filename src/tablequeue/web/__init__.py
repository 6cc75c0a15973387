"""The dashboard of `tablequeue serve`: server-rendered pages over the public verbs, and metrics."""

from tablequeue.web.app import dashboard

__all__ = ["dashboard"]
