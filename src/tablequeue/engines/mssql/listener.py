"""The listener of SQL Server: one thread of a process polls, for all its consumers. See docs/adr/0030-*."""

from __future__ import annotations

from typing import ClassVar

from tablequeue.engines.poll import Poll


class SQLServerPoll(Poll):
    joins: ClassVar[bool] = False  # a look is a batch with variables of its own
