"""What comes from the server on a connection of ours, and what is done while nothing comes: see silence.py.

If a statement of a packet is killed (`KILL QUERY`) when it is just done, the server says that there is more, answers
nothing more of the packet, and waits for the next one. So a packet that has no answer for 2 s is followed by a ping.
The server answers it after the packet, or in place of its rest.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from select import POLLIN, poll
from threading import local
from typing import Any

import pymysql
import sqlalchemy as sa
from pymysql.constants import CR

from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.silence import PAUSES, Silence, Watch, watch_machine

# Seconds that a new connection may wait for each answer, until it is watched.
CONNECT_TIMEOUT = 30.0
# The whole of COM_PING: a length of one byte, the number of a first packet, the command.
PING = b"\1\0\0\0\x0e"
# The number of the packet of its answer.
FIRST_ANSWER = 1
CUT_OFF = "the server has answered only the beginning of a packet: a statement of it was killed"

_making = local()


class Answers(io.RawIOBase):
    """Reads the socket of a connection, as the file does that the driver makes of it."""

    pings = False
    """Whether a packet is under way, which is followed by a ping if its answer does not come."""
    pinged = False
    """Whether the answer to a ping has still to come."""

    def __init__(self, source: Any, watch: Watch) -> None:
        self._source, self._watch = source, watch
        self._pending = getattr(source, "pending", int)  # the bytes that TLS has read already
        self._look = poll()
        self._look.register(source.fileno(), POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._pending() and not self._look.poll(PAUSES[0] * 1000):
            self._wait()
        return int(self._source.recv_into(buffer))

    def _wait(self) -> None:
        if self.pings and not self.pinged:
            self._source.sendall(PING)
            self.pinged = True
        silence = Silence(self._watch)
        while not self._look.poll(silence.pause * 1000):
            silence.question()


def watch_answers(dbapi: Any, watch: Watch) -> None:
    """Have a connection of the driver watched. If the caller's Engine bounds each read, that holds instead."""
    watch_machine(dbapi._sock.fileno())  # noqa: SLF001  (PyMySQL has no public way to it, nor to what follows)
    if dbapi._read_timeout is None or dbapi._read_timeout is CONNECT_TIMEOUT:  # noqa: SLF001
        dbapi._read_timeout = None  # noqa: SLF001
        before, dbapi._rfile = dbapi._rfile, io.BufferedReader(Answers(dbapi._sock, watch))  # noqa: SLF001
        before.close()


@contextmanager
def packet_answered(dbapi: Any, statements: int, results: list[Any]) -> Iterator[None]:
    """Read the results of a packet in the block; a ping may follow it. Raise an error if some never come.

    results   gets one of each statement.
    """
    answers = getattr(dbapi._rfile, "raw", None)  # noqa: SLF001  (see watch_answers)
    if not isinstance(answers, Answers):
        yield
        return
    answers.pings = True
    try:
        yield
        if answers.pinged and len(results) < statements:  # its number was that of the next result
            raise pymysql.InternalError
    except pymysql.InternalError as error:
        if answers.pinged and not number_of(error):
            dbapi._force_close()  # noqa: SLF001  (the number of a packet was wrong: it was the answer to the ping)
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, CUT_OFF) from error
        _skip_answer(dbapi, answers)
        raise
    except pymysql.Error:
        _skip_answer(dbapi, answers)
        raise
    else:
        _skip_answer(dbapi, answers)
    finally:
        answers.pings = False


def _skip_answer(dbapi: Any, answers: Answers) -> None:
    """Read the answer to the ping, if one was sent, after those of the packet."""
    if answers.pinged and dbapi.open:
        answers.pinged = False
        dbapi._next_seq_id = FIRST_ANSWER  # noqa: SLF001
        dbapi._read_packet()  # noqa: SLF001


def bound_connects(sa_engine: sa.Engine) -> None:
    """Prepare `connecting`: the driver bounds the opening of a socket, but no answer."""
    if not sa.event.contains(sa_engine, "do_connect", _bound):
        sa.event.listen(sa_engine, "do_connect", _bound)


@contextmanager
def connecting() -> Iterator[None]:
    """Bound each wait of the connections that this thread makes in the block, and of no others of the Engine."""
    _making.ours = True
    try:
        yield
    finally:
        _making.ours = False


def _bound(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
    if getattr(_making, "ours", False):
        options.setdefault("read_timeout", CONNECT_TIMEOUT)
