"""The process from which Spark forks its Python workers on this machine."""

from __future__ import annotations

import gc
import socket
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from tablequeue.spark import daemon


class Held:
    """An object that holds itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_worker_spares_later_collections_what_a_task_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[weakref.ref[Held]] = []

    def task(connection: socket.socket, authenticated: bool) -> int:
        monkeypatch.setitem(sys.modules, "loaded_by_a_task", ModuleType("loaded_by_a_task"))
        left.append(weakref.ref(Held()))
        return 0

    monkeypatch.setattr(daemon, "_worker", task)
    with socket.socket() as connection:
        assert daemon.worker(connection, True) == 0
        assert left[0]() is None, "garbage is collected, and not kept"
        frozen = gc.get_freeze_count()
        assert frozen > 0
        daemon.worker(connection, True)
        assert gc.get_freeze_count() <= frozen, "a task that loads nothing adds nothing"
