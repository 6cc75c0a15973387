"""The app: `tablequeue.contrib.django` in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class TablequeueConfig(AppConfig):
    name = "tablequeue.contrib.django"
    label = "tablequeue"
    verbose_name = "Table queues"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tablequeue.contrib.django.tables import after_migrate

        post_migrate.connect(after_migrate, sender=self)
