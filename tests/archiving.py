"""The archive of a process that dies, and the steps at which it dies.

Besides the steps of the database (crashes.py): in the middle of a file, after it is on the disk, after it has its name;
before a commit of a table, when its files may be there, and after it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tablequeue.bulk import archive as module
from tablequeue.bulk.archive import archive
from tests.crashes import Steps, open_stepping, standing_at
from tests.servers import Place
from tests.support import at

# With its first time pyarrow imports pandas, which takes longer than an archive: here it is once for all processes.
pa.array([at(0)])


def archive_in_steps(
    place: Place, name: str, lake: Path, reached: Callable[[int, str], None], format: Any = "parquet"
) -> None:
    """Archive a queue of nine messages in three batches."""
    steps = Steps(reached)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FILE_ROWS", 3)
        patch.setattr(module, "FIRST_ROWS", 2)
        patch.setattr(parquet, "write_table", in_two_pieces(parquet.write_table, steps))
        for call in ("fsync", "link", "sync"):
            patch.setattr(os, call, then_a_step(getattr(os, call), steps))
        to, options = target(lake, format)
        for place_of, calls in table_calls(format):
            for call in calls:
                patch.setattr(place_of, call, around(getattr(place_of, call), steps))
        queue = open_stepping(place, steps).queue(name)
        steps.armed = True
        archive(queue, to, 0, now=at(1000), **options)
        steps.step("returned")


def target(lake: Path, format: str) -> tuple[str, dict[str, Any]]:
    """Where an archive goes that is in a folder, and the options for that."""
    if format == "iceberg":
        return f"{lake.parent.name}.{lake.name}", {"format": format, "warehouse": str(lake.parent.parent)}
    return str(lake), {"format": format}


def table_calls(format: str) -> list[tuple[Any, list[str]]]:
    """What the libraries of tables do in one call."""
    if format == "delta":
        from deltalake import DeltaTable

        from tablequeue.bulk import delta

        return [(delta, ["write_deltalake"]), (DeltaTable, ["create"])]
    if format == "iceberg":
        from tablequeue.bulk.catalogue import Catalogue

        return [(Catalogue, ["create_tables", "create_namespace", "commit_table"])]
    return []


def around(call: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        steps.step(f"before {call.__name__}")
        result = call(*args, **options)
        steps.step(call.__name__)
        return result

    return called


def in_two_pieces(write_table: Callable[..., None], steps: Steps) -> Callable[..., None]:
    def write(table: Any, file: Any, **options: Any) -> None:
        whole = BytesIO()
        write_table(table, whole, **options)
        contents = whole.getvalue()
        file.write(contents[: len(contents) // 2])
        file.flush()
        steps.step("half of a file")
        file.write(contents[len(contents) // 2 :])

    return write


def then_a_step(call: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        result = call(*args, **options)
        steps.step(call.__name__)
        return result

    return called


def steps_of(place: Place, name: str, lake: Path, format: str = "parquet") -> list[str]:
    words: list[str] = []
    archive_in_steps(place, name, lake, lambda number, said: words.append(said), format)
    return words


def chosen(words: list[str]) -> list[int]:
    """The numbers of the steps to die at: of each kind the first, the one in the middle, and the last."""
    places = [[number for number, word in enumerate(words, 1) if word == kind] for kind in dict.fromkeys(words)]
    return sorted({number for found in places for number in (found[0], found[len(found) // 2], found[-1])})


def stop_in_archive(place: Place, name: str, lake: Path, format: str, number: int, pipe: Connection) -> None:
    """Archive up to this step, report it, and stay there until killed."""
    archive_in_steps(place, name, lake, standing_at(number, pipe), format)


def die_in_archives(place: Place, format: str, deaths: list[tuple[str, Path, int]], pipe: Connection) -> None:
    """Archive each of these queues in a process of its own, which is killed at that step. Report how each ended."""
    table_calls(format)  # imported once for all of them, which takes longer than they do
    for name, lake, number in deaths:
        child = os.fork()
        if not child:
            try:
                archive_in_steps(place, name, lake, dying_at(number), format)
            finally:
                os._exit(1)
        pipe.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def dying_at(number: int) -> Callable[[int, str], None]:
    def reached(step: int, words: str) -> None:
        if step == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached
