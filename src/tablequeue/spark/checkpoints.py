"""What an offset in a checkpoint names: the database, the table and the stream, and the position in it.

A checkpoint may be used with another database, queue or stream by mistake: a checkpoint of staging in production, of a
test queue, or a copy. Its number may fit there too. So each run compares the origin before it completes or skips
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tablequeue.bulk.identity import identity_of
from tablequeue.consumer import Consumer
from tablequeue.errors import StreamRefused
from tablequeue.topic import Topic

Offset = dict[str, Any]

REMEDY = "Name the right database and queue or topic; or use a new checkpoint."


class Origin:
    """The origin of the offsets of a run. `words` describe it in an error."""

    def __init__(self, source: Consumer | Topic, stream: str | None = None) -> None:
        self.kind = source.definition.kind
        self._identity = identity_of(source)
        self._names = {self.kind: source.name} | ({} if stream is None else {"stream": stream})

    def offset(self, **position: int | str | None) -> Offset:
        """Return an offset. The names are for people, and for `tablequeue stream reconcile`."""
        return {**self._identity._asdict(), **self._names, **position}

    def check(self, offset: Mapping[str, Any]) -> None:
        """Raise `StreamRefused` unless an offset is of this origin. The queue or the topic may have been renamed."""
        there, here = self._words(offset), self._words(self._names)
        differs = {name for name, value in self._identity._asdict().items() if offset.get(name) != value}
        if self.kind not in offset or not {"database", "table"} <= offset.keys():
            cause = f"The checkpoint is of {there}, and is used for {here}."
        elif "database" in differs:
            cause = (
                f"The checkpoint is of {there} in the database with the identity {offset['database']}, and is used for "
                f"{here} in the database with the identity {self._identity.database}."
            )
        elif "table" in differs and offset[self.kind] == self._names[self.kind]:
            cause = f"The {self.kind} {self._names[self.kind]!r} was dropped and created again since the checkpoint."
        elif "table" in differs or offset.get("stream") != self._names.get("stream"):
            cause = f"The checkpoint is of {there}, and is used for {here}."
        else:
            return
        raise StreamRefused(cause, REMEDY)

    def _words(self, names: Mapping[str, Any]) -> str:
        kind = next((kind for kind in ("queue", "topic") if kind in names), None)
        if kind is None:
            return "another source"
        stream = f"the stream {names['stream']!r} of " if "stream" in names else ""
        return f"{stream}the {kind} {names[kind]!r}"
