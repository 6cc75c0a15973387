"""Shared parts of the worker tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, local
from time import monotonic, sleep
from typing import Any

from tablequeue import Database
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.engine import Engine
from tablequeue.engines.operation import declaration
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.errors import ConnectionLost
from tablequeue.worker import Worker
from tests.support import with_parts

# Seconds after which a test that waits has failed. What it waits for takes milliseconds.
PATIENCE = 60


@contextmanager
def working(worker: Worker, database: Database, **options: Any) -> Iterator[Thread]:
    """Run a worker in a thread, and stop it at the end of the block."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(database, **options)
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive(), "the worker does not stop"
    if errors:
        raise errors[0]


def until(holds: Callable[[], Any], what: str) -> None:
    """Poll until `holds` is true: for changes in the database, or in another process, that notify nobody."""
    deadline = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < deadline, f"waited in vain: {what}"
        sleep(0.002)


def losing(engine: type[Engine], fate: Callable[[str], str]) -> type[Engine]:
    """Return an engine whose connection breaks at a `complete`, `fail` or `release`, as `fate` says.

    `before` breaks it before the call takes effect, and `after` loses only the answer. Any other word does not break
    it.
    """
    lost = local()

    def break_off() -> None:
        raise ConnectionLost("The connection broke, for the test.", "Try again.")

    class Losing(engine):  # type: ignore[misc, valid-type]
        def adopt(self, dbapi: Any) -> RawConnection:
            connection: RawConnection = super().adopt(dbapi)
            commit = connection.commit

            def commit_and_break() -> None:
                commit()
                if getattr(lost, "now", False):
                    lost.now = False
                    break_off()

            connection.commit = commit_and_break  # type: ignore[method-assign]
            return connection

    class LosingMessages(type(engine.messages)):  # type: ignore[misc]
        def complete(self, cursor: Cursor, table: Table, params: Params) -> Any:
            return self._may_break("complete", cursor, table, params)

        def fail(self, cursor: Cursor, table: Table, params: Params) -> Any:
            return self._may_break("fail", cursor, table, params)

        def release(self, cursor: Cursor, table: Table, params: Params) -> Any:
            return self._may_break("release", cursor, table, params)

        def _may_break(self, verb: str, *args: Any) -> Any:
            end = fate(verb)
            if end == "before":
                lost.now = False  # of another claim in the transaction, which is rolled back
                break_off()
            result = getattr(super(), verb)(*args)
            if end == "after":
                declared = declaration(getattr(engine.messages, verb))
                if declared is not None and declared.effect in engine.autocommit:
                    break_off()
                lost.now = True  # after the commit
            return result

    return with_parts(Losing, {"messages": LosingMessages})
