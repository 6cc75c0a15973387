"""Tools for the tests of an application: what it pushed, what its handlers do, and time that a test moves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tablequeue.testing.databases import temporary_database
    from tablequeue.testing.pushed import assert_pushed

# The public names of each module. A name is imported at its first use: pytest imports this package, with the plugin in
# it, in every project of an environment, and those without a queue must not pay for it.
_NAMES = {
    "databases": "temporary_database",
    "pushed": "assert_pushed",
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


__all__ = ["assert_pushed", "temporary_database"]
