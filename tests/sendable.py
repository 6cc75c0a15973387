"""Reports of tests as xdist can send them from one process to another: without lone surrogates.

PyMySQL writes a value of bytes into its statements with surrogates, so what names a statement may have some.
"""

from __future__ import annotations

from typing import Any


def sendable(data: Any) -> Any:
    """Return lists, dicts and texts with each lone surrogate as its escape."""
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, dict):
        return {sendable(key): sendable(value) for key, value in data.items()}
    return type(data)(map(sendable, data)) if type(data) in (list, tuple) else data
