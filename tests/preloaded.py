"""What the server of fresh processes (crowd.py) imports once for all of them."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from tablequeue.engines import ENGINES, engine_class
from tablequeue.errors import DriverMissing
from tests import crashes, crowd, load

for name in ENGINES:
    import_module(f"sqlalchemy.dialects.{name}")
    with suppress(DriverMissing):
        engine_class(name)

__all__ = ["crashes", "crowd", "load"]
