"""The archive of a process that dies, and the steps at which it dies.

Besides the steps of the database (crashes.py): in the middle of a file, after it is on the disk, after it has its name.
"""

from __future__ import annotations

import os
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


def archive_in_steps(place: Place, name: str, lake: Path, reached: Callable[[int, str], None]) -> None:
    """Archive a queue of nine messages in three files."""
    steps = Steps(reached)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FILE_ROWS", 3)
        patch.setattr(module, "FIRST_ROWS", 2)
        patch.setattr(parquet, "write_table", in_two_pieces(parquet.write_table, steps))
        for call in ("fsync", "link"):
            patch.setattr(os, call, then_a_step(getattr(os, call), steps))
        queue = open_stepping(place, steps).queue(name)
        steps.armed = True
        archive(queue, lake, 0, now=at(1000))
        steps.step("returned")


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


def steps_of(place: Place, name: str, lake: Path) -> list[str]:
    words: list[str] = []
    archive_in_steps(place, name, lake, lambda number, said: words.append(said))
    return words


def chosen(words: list[str]) -> list[int]:
    """The numbers of the steps to die at: of each kind the first, the one in the middle, and the last."""
    places = [[number for number, word in enumerate(words, 1) if word == kind] for kind in dict.fromkeys(words)]
    return sorted({number for found in places for number in (found[0], found[len(found) // 2], found[-1])})


def stop_in_archive(place: Place, name: str, lake: Path, number: int, pipe: Connection) -> None:
    """Archive up to this step, report it, and stay there until killed."""
    archive_in_steps(place, name, lake, standing_at(number, pipe))
