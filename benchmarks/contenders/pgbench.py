"""pgbench: the project's own statements for one message, prepared and sent from C. This is the limit of the server for
one client.

A script cannot get payloads from outside, so it computes those of `benchmarks.contenders.payloads`. It cannot report
what it claimed, so that is read from the history. Each run starts a process and a connection, which takes about 20 ms.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import sqlalchemy as sa
from tests.servers import postgresql_bin

import tablequeue
from benchmarks.contenders import Contender
from tablequeue.ext import context_of

# Values of the parameters of the statements. The others are variables of pgbench.
_PUSH = {"payload": "lpad(cast(:place as text), 100, '0')", "priority": "0", "producer": "'pgbench'"}
_PUSH |= dict.fromkeys(("headers", "group", "key", "delay", "due", "now"), "null")
_CYCLE = {
    "n": "1",
    "token": "lpad(to_hex(cast(:token as bigint)), 32, '0')",
    "consumer": "'pgbench'",
    "lease": "60",
    "now": "null",
}
_CYCLE |= {"ids": "array[:id]", "low_water": ":id"}


class Pgbench(Contender):
    """Pushes and drains one by one only."""

    name = "pgbench"

    def __init__(self, url: str) -> None:
        programs = postgresql_bin()
        assert programs is not None, "its server is here"
        self._program = str(programs / "pgbench")
        self._server = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._database = tablequeue.connect(url)
        self._queue = self._database.create_queue("pgbench", payload="text")
        self._last = 0  # the highest id in the history
        push = f"\\set place :place + 1\n{self._text('push', _PUSH)};"
        cycle = "\\set token random(0, 4611686018427387904)\n"
        cycle += f"{self._text('claim', _CYCLE)} \\gset\n{self._text('complete', _CYCLE)};"
        self._folder = tempfile.TemporaryDirectory(prefix="tablequeue-bench-")
        self._push_script, self._cycle_script = (Path(self._folder.name, name) for name in ("push", "cycle"))
        self._push_script.write_text(push)
        self._cycle_script.write_text(cycle)

    def push(self, payloads: Sequence[str]) -> None:
        self._script(self._push_script, len(payloads), place=-1)

    push_bulk = push

    def drain_singly(self, number: int) -> list[str]:
        self._script(self._cycle_script, number, id=self._last)
        rows = self._queue.history(number)
        delivered = [row.payload for row in rows if row.id > self._last]
        self._last = rows[0].id
        return delivered

    drain = drain_singly

    def close(self) -> None:
        self._folder.cleanup()
        self._database.close()

    def _script(self, script: Path, number: int, **variables: int) -> None:
        given = [f"-D{name}={value}" for name, value in variables.items()]
        command = [self._program, "-n", "-Mprepared", f"-t{number}", f"-f{script}", *given, self._server]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _text(self, operation: str, words: Mapping[str, str]) -> str:
        context = context_of(self._queue)
        (text,) = context.engine.split(context.engine.render(operation, context.table))
        return re.sub(r":(\w+)", lambda match: words[match[1]], text)
