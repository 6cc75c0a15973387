"""What the tests import of django-tasks-db, made of queues."""

from tablequeue.contrib.django import Backend as DatabaseBackend
from tablequeue.contrib.django import compat

__all__ = ["DatabaseBackend", "compat"]
