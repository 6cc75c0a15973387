"""A result backend for Celery: results, groups and chords in a database, which may be the broker's.

    app = Celery("shop", broker="tablequeue+postgresql://…", backend="tablequeue+postgresql://…")

Celery finds the backend by its entry point. Import this module for the broker, which has no entry point.
"""

import tablequeue.contrib.kombu  # noqa: F401  (it makes the transport known)
from tablequeue.contrib.celery.backend import Backend

__all__ = ["Backend"]
