"""Imports that the server of fresh processes (crowd.py) makes once for all of them."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from tablequeue.errors import DriverMissing
from tests import archiving, crashes, crowd, load
from tests.servers import KINDS

for kind in KINDS:
    with suppress(DriverMissing):
        import_module(f"sqlalchemy.dialects.{kind.engine_class.name}")

__all__ = ["archiving", "crashes", "crowd", "load"]
