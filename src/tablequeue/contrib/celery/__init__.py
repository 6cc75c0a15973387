"""A result backend for Celery: results, groups and chords in a database, which may be the broker's.

    app = Celery("shop", broker="tablequeue+postgresql://…", backend="tablequeue+postgresql://…")

Celery finds the backend by its entry point. Import this module for the broker, which has no entry point.
"""

from tablequeue.contrib.celery.backend import Backend
from tablequeue.contrib.kombu import in_transaction  # the import makes the transport known, too

__all__ = ["Backend", "in_transaction"]
