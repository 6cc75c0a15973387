"""What the tests of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

Run = Callable[..., Result]


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]
