"""Arrow batches as the text of COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tablequeue.engines.postgresql.values import copy_text

# What the text format of COPY escapes, the backslash first.
ESCAPES = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def copied_lines(ids: Sequence[int], batch: pa.RecordBatch, producer: str, pushed_at: str) -> memoryview:
    """Return messages as topic_copy takes them. Arrow joins the columns: it takes a tenth of the time of Python."""

    def column(name: str) -> Any:
        if name not in batch.schema.names:
            return pa.scalar(None, pa.large_string())
        values = batch[name]
        if pa.types.is_binary(values.type):
            return pa.array([copy_text(value) for value in values.to_pylist()], pa.large_string())
        values = values.cast(pa.large_string())
        for character, escape in ESCAPES.items():
            values = pc.replace_substring(values, character, escape)
        return values

    lines = pc.binary_join_element_wise(
        pa.array(ids).cast(pa.large_string()),
        column("payload"),
        column("headers"),
        pa.scalar(copy_text(producer), pa.large_string()),
        column("group"),
        pa.scalar(f"{pushed_at}\n", pa.large_string()),
        pa.scalar("\t", pa.large_string()),
        null_handling="replace",
        null_replacement=r"\N",
    )
    # The values of a column of texts follow each other in one buffer: that is the whole text.
    return memoryview(lines.buffers()[2])[: pc.sum(pc.binary_length(lines)).as_py()]
