"""Progress: what the consumer of a message in progress reports of its work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """The last report on a message in progress.

    fraction   how much of the work is done, from 0 to 1.
    detail     the JSON value that was given with it; None if none was.
    at         when it was written, in UTC.
    attempt    the attempt that reported it, from 1.
    """

    fraction: float
    detail: Any
    at: datetime
    attempt: int
