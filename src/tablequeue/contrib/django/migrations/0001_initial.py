"""The tables of the queues in the settings. Queues that are added later are made at the end of `migrate`."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


def make(apps: Any, editor: Any) -> None:
    from tablequeue.contrib.django import tables

    tables.make(editor.connection.alias)


def drop(apps: Any, editor: Any) -> None:
    from tablequeue.contrib.django import tables

    tables.drop(editor.connection.alias)


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.CreateModel(
            name="Task",
            fields=[("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False))],
            options={"managed": False, "default_permissions": ("view", "change"), "verbose_name": "task"},
        ),
        migrations.RunPython(make, drop),
    )
