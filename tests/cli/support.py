"""What the tests of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

Run = Callable[..., Result]


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# Every command that only reads, or that needs an existing queue.
COMMANDS = [
    "queue list",
    "queue show work",
    "queue drop work --yes",
    "queue rename work new",
    "queue purge work --yes",
    "topic list",
    "topic show work",
    "topic drop work --yes",
    "topic subscribe work/mail",
    "topic unsubscribe work/mail --yes",
    "topic seek work/mail end",
    "topic lag work/mail",
    "stats",
    "stats work",
    "top",
    "top work",
    "peek work",
    "push work 1",
    "pop work",
    "result work 1",
    "complete work 1 ffffffffffffffffffffffffffffffff",
    "fail work 1 ffffffffffffffffffffffffffffffff",
    "cancel work 1",
    "reschedule work 1 --delay 5",
    "dead list work",
    "dead redrive work",
    "move work new",
    "batch show 1",
    "batch results 1",
    "batch cancel 1 --yes",
    "history list work",
    "archive work --to lake --older-than 0",
    "lost work",
    "doctor",
    "doctor work",
    "sizes",
    "stream list work",
    "stream release work lake",
    "upgrade",
    "database identity",
    "work tests.worker.handlers:never_end --queue work --drain",
]
