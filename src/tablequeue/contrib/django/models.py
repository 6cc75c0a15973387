"""A model without a table, for tasks in the admin and its permissions."""

from __future__ import annotations

from django.db import models


class Task(models.Model):
    """A task, as the admin shows it. It is read by the verbs of its queue, never by a query of the model."""

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "task"
