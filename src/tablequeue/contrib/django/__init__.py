"""Tasks of Django in table queues: a backend for `django.tasks`, a worker, an admin and tools for tests.

`INSTALLED_APPS` needs "tablequeue.contrib.django", and `TASKS` the backend "tablequeue.contrib.django.Backend".
docs/django.md explains the options.
"""

from tablequeue.contrib.django.backend import Backend

__all__ = ["Backend"]
