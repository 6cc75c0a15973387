"""Tools for the tests of an application: an assertion on pushed messages, calls of handlers, and a clock that a test
moves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tablequeue.testing.clock import Clock
    from tablequeue.testing.consuming import Drained, Killed, Performed
    from tablequeue.testing.databases import temporary_database
    from tablequeue.testing.failures import killed_after, lose_lease, with_lost_lease
    from tablequeue.testing.performing import drain, perform
    from tablequeue.testing.pushed import assert_pushed
    from tablequeue.testing.transaction import in_transaction

# The public names of each module. A name is imported at its first use: pytest imports this package, with its plugin, in
# every project of an environment, and a project without queues must not pay for it.
_NAMES = {
    "clock": "Clock",
    "consuming": "Drained Killed Performed",
    "databases": "temporary_database",
    "failures": "killed_after lose_lease with_lost_lease",
    "performing": "drain perform",
    "pushed": "assert_pushed",
    "transaction": "in_transaction",
}

if not TYPE_CHECKING:  # type checkers take a module with this function for one that has every name

    def __getattr__(name: str) -> Any:
        module = next((module for module, names in _NAMES.items() if name in names.split()), None)
        if module is None:
            raise AttributeError(f"module 'tablequeue.testing' has no attribute {name!r}")
        value = getattr(import_module(f"tablequeue.testing.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Clock",
    "Drained",
    "Killed",
    "Performed",
    "assert_pushed",
    "drain",
    "in_transaction",
    "killed_after",
    "lose_lease",
    "perform",
    "temporary_database",
    "with_lost_lease",
]
