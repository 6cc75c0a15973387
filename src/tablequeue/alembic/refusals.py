"""Errors of tablequeue as errors of Alembic: its command line prints these without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic.util import CommandError

from tablequeue.errors import TablequeueError


@contextmanager
def refusing(what: str = "") -> Iterator[None]:
    """Raise `CommandError` for a `TablequeueError`, which is its cause. The text begins with `what`."""
    try:
        yield
    except TablequeueError as error:
        raise CommandError(f"{what}: {error}" if what else str(error)) from error
