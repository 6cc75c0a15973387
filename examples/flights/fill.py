"""Push flights for the pipeline: `python -m examples.flights.fill [N]`, into the database of TABLEQUEUE_URL."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import chain, islice

import tablequeue
from examples.flights.data import flights

# Messages that a stage cannot process. `tablequeue dead list raw` shows their errors.
BROKEN = [{"n": -1, "carrier": "UA"}, {"n": -2, "time_hour": "this morning", "minute": 5}]


def main(arguments: Sequence[str], url: str) -> None:
    total = int(arguments[0]) if arguments else 20_000
    with tablequeue.connect(url, name="fill") as database:
        raw = database.create_queue("raw")
        database.create_queue("enriched", order="due")
        database.create_queue("delayed")
        pushed = len(raw.push_many(chain(islice(flights(), total), BROKEN)))
    print(f"{pushed:,} messages pushed to the queue raw, {len(BROKEN)} of them broken")


if __name__ == "__main__":
    main(sys.argv[1:], os.environ["TABLEQUEUE_URL"])
