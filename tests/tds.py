"""A stand-in for SQL Server on the wire, with enough of its protocol, TDS 7.4, for the real drivers.

It runs no SQL. It passes each text with its parameters to a function, which returns the answer, and records what came.
So it shows how the drivers translate values and errors, and what they send. It shows nothing about the server.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, NamedTuple

# The server's collation Latin1_General_CI_AS, and the sizes that it reports.
COLLATION = bytes((0x09, 0x04, 0xD0, 0x00, 0x34))
PACKET = 4096
NULL, LONG_NULL = b"\xff\xff", b"\xff" * 8


class Column(NamedTuple):
    name: str
    type: str
    """One of TYPES."""


class Refusal(NamedTuple):
    """An error of the server."""

    number: int
    words: str


class Sent(NamedTuple):
    text: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]


Reply = Callable[[Sent], Rows | Refusal | None]


# -- values ------------------------------------------------------------------------------------------------------------


def _long(data: bytes | None) -> bytes:
    if data is None:
        return LONG_NULL
    pieces = (data[start : start + 5000] for start in range(0, len(data), 5000))
    return struct.pack("<Q", len(data)) + b"".join(_sized("<I", piece) for piece in pieces) + bytes(4)


def _short(data: bytes | None) -> bytes:
    return NULL if data is None else _sized("<H", data)


def _sized(form: str, data: bytes) -> bytes:
    return struct.pack(form, len(data)) + data


def _utf16(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-16-le", "surrogatepass")


def _latin1(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def _number(form: str) -> Callable[[Any], bytes]:
    return lambda value: b"\0" if value is None else _sized("<B", struct.pack(form, value))


# The description of a type, and the encoding of its values.
TYPES: dict[str, tuple[bytes, Callable[[Any], bytes]]] = {
    "bigint": (b"\x26\x08", _number("<q")),
    "int": (b"\x26\x04", _number("<i")),
    "smallint": (b"\x26\x02", _number("<h")),
    "float": (b"\x6d\x08", _number("<d")),
    "nvarchar(max)": (b"\xe7" + NULL + COLLATION, lambda text: _long(_utf16(text))),
    "nvarchar(510)": (b"\xe7" + struct.pack("<H", 1020) + COLLATION, lambda text: _short(_utf16(text))),
    "nvarchar(512)": (b"\xe7" + struct.pack("<H", 1024) + COLLATION, lambda text: _short(_utf16(text))),
    "varchar(11)": (b"\xa7" + struct.pack("<H", 11) + COLLATION, lambda text: _short(_latin1(text))),
    "varbinary(max)": (b"\xa5" + NULL, _long),
    "varbinary(1024)": (b"\xa5" + struct.pack("<H", 1024), _short),
}


def _name(text: str) -> bytes:
    return bytes((len(text),)) + text.encode("utf-16-le")


# -- what the server says ----------------------------------------------------------------------------------------------


def _done(token: int = 0xFD, status: int = 0, count: int = 0) -> bytes:
    return struct.pack("<BHHQ", token, status, 0xC1 if status & 0x10 else 0, count)


def _rows(said: Rows) -> bytes:
    head = struct.pack("<BH", 0x81, len(said.columns))
    head += b"".join(struct.pack("<IH", 0, 9) + TYPES[column.type][0] + _name(column.name) for column in said.columns)
    return head + b"".join(
        b"\xd1" + b"".join(TYPES[column.type][1](value) for column, value in zip(said.columns, row, strict=True))
        for row in said.rows
    )


def _refusal(said: Refusal) -> bytes:
    body = struct.pack("<iBB", said.number, 1, 16)
    body += struct.pack("<H", len(said.words)) + said.words.encode("utf-16-le") + _name("server") + _name("")
    return b"\xaa" + _sized("<H", body + struct.pack("<i", 1))


def _changed(kind: int, new: bytes, old: bytes = b"\0") -> bytes:
    return b"\xe3" + _sized("<H", bytes((kind,)) + new + old)


def _logged_in() -> bytes:
    agreed = b"\x01" + bytes((0x74, 0, 0, 4)) + _name("Microsoft SQL Server") + bytes((16, 0, 16, 0))
    return (
        _changed(1, _name("work"), _name("master"))
        + _changed(7, _sized("<B", COLLATION))
        + _changed(4, _name(str(PACKET)), _name(str(PACKET)))
        + b"\xad"
        + _sized("<H", agreed)
        + _done()
    )


def _not_encrypted() -> bytes:
    """Return the answer to the first message: version, no encryption, no instance, no MARS."""
    options = [(0, bytes((16, 0, 16, 0, 0, 0))), (1, b"\x02"), (2, b"\0"), (4, b"\0")]
    head, data = b"", b""
    for token, value in options:
        head += struct.pack(">BHH", token, 5 * len(options) + 1 + len(data), len(value))
        data += value
    return head + b"\xff" + data


# -- what the drivers send ---------------------------------------------------------------------------------------------

PROCEDURES = {10: "sp_executesql", 11: "sp_prepare", 12: "sp_execute", 13: "sp_prepexec", 15: "sp_unprepare"}


class _Call:
    """A call of a procedure: its name, and the values of its parameters."""

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, struct.unpack_from("<I", body)[0]
        length = self._take("<H")
        self.name = PROCEDURES.get(self._take("<H"), "") if length == 0xFFFF else self._text(length)
        self._take("<H")
        self.values: list[Any] = []
        while self.at < len(body):
            self._text(self._take("<B"))
            self._take("<B")
            self.values.append(self._value(self._take("<B")))

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.body, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def _bytes(self, length: int) -> bytes:
        self.at += length
        return self.body[self.at - length : self.at]

    def _text(self, length: int) -> str:
        return self._bytes(2 * length).decode("utf-16-le")

    def _value(self, kind: int) -> Any:
        if kind in (0xE7, 0xA7, 0xA5):  # nvarchar, varchar, varbinary
            size = self._take("<H")
            if kind != 0xA5:
                self._bytes(5)
            data = self._long_value() if size == 0xFFFF else self._short_value()
            if data is None or kind == 0xA5:
                return data
            return data.decode("utf-16-le", "surrogatepass") if kind == 0xE7 else data.decode("latin-1")
        if kind in (0x26, 0x6D):  # whole numbers, float
            self._take("<B")
            data = self._bytes(self._take("<B"))
            if not data:
                return None
            return (
                int.from_bytes(data, "little", signed=len(data) > 1) if kind == 0x26 else struct.unpack("<d", data)[0]
            )
        raise NotImplementedError(f"a parameter of type {kind:#x}")

    def _short_value(self) -> bytes | None:
        length = self._take("<H")
        return None if length == 0xFFFF else self._bytes(length)

    def _long_value(self) -> bytes | None:
        if self._take("<Q") == 0xFFFFFFFFFFFFFFFF:
            return None
        data = b""
        while length := self._take("<I"):
            data += self._bytes(length)
        return data


class _Session(BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        self.prepared: dict[int, str] = {}
        self.server.sessions.append(self.request)
        try:
            while True:
                kind, body = self._message()
                self._send(self._answer(kind, body))
        except (EOFError, ConnectionError):
            return  # the driver has disconnected

    def _answer(self, kind: int, body: bytes) -> bytes:
        if kind == 0x12:
            return _not_encrypted()
        if kind == 0x10:
            return _logged_in()
        if kind == 0x01:
            text = body[struct.unpack_from("<I", body)[0] :].decode("utf-16-le")
            return self._said(Sent(text, ()), 0xFD)
        if kind == 0x03:
            return self._called(_Call(body))
        if kind == 0x0E:  # a transaction begins or ends
            begins = body[22] == 5
            number = _sized("<B", struct.pack("<Q", 1))
            return (_changed(8, number) if begins else _changed(9, b"\0", number)) + _done()
        return _done(status=0x20)  # an attention

    def _called(self, call: _Call) -> bytes:
        status = b"\x79" + bytes(4)
        if "datatype_info" in call.name:
            columns = [
                Column("TYPE_NAME", "nvarchar(510)"),
                Column("DATA_TYPE", "smallint"),
                Column("PRECISION", "int"),
            ]
            rows = Rows(columns, [("type", call.values[0], 8000)])
            return _rows(rows) + _done(0xFF, 0x11, 1) + status + _done(0xFE)
        if call.name in ("sp_prepare", "sp_prepexec"):
            handle, text = len(self.prepared) + 1, call.values[2]
            self.prepared[handle] = text
            returned = b"\xac\0\0\0\x01" + bytes(6) + b"\x26\x04\x04" + struct.pack("<i", handle)
            if call.name == "sp_prepare":
                return status + returned + _done(0xFE)
            said = self._said(Sent(text, tuple(call.values[3:])), 0xFF, more=True)
            return said + status + returned + _done(0xFE)
        if call.name == "sp_execute":
            sent = Sent(self.prepared[call.values[0]], tuple(call.values[1:]))
        elif call.name == "sp_executesql":
            sent = Sent(call.values[0], tuple(call.values[2:]))
        else:
            return status + _done(0xFE)
        return self._said(sent, 0xFF, more=True) + status + _done(0xFE)

    def _said(self, sent: Sent, token: int, more: bool = False) -> bytes:
        self.server.sent.append(sent)
        said = self.server.reply(sent)
        if isinstance(said, Refusal):
            return _refusal(said) + _done(token, 0x02 | more)
        if said is None:
            return _done(token, int(more))
        return _rows(said) + _done(token, 0x10 | more, len(said.rows))

    def _message(self) -> tuple[int, bytes]:
        body, last = b"", False
        while not last:
            kind, status, length = struct.unpack(">BBH", self._received(8)[:4])
            body += self._received(length - 8)
            last = bool(status & 1)
        return kind, body

    def _received(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self.request.recv(length - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def _send(self, body: bytes) -> None:
        """Send all packets at once, because a driver may hold the GIL while it waits for the rest of an answer."""
        size, packets = PACKET - 8, b""
        for number, start in enumerate(range(0, len(body), size), 1):
            piece = body[start : start + size]
            last = start + size >= len(body)
            packets += struct.pack(">BBHHBB", 4, last, len(piece) + 8, 51, number % 256, 0) + piece
        self.request.sendall(packets)


class Server(ThreadingTCPServer):
    """A server on a free port of this machine. `reply` may be changed at any time."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.reply = reply
        self.sent: list[Sent] = []
        self.sessions: list[socket.socket] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close_sessions(self) -> None:
        """Close the connections of all clients, as a server does that ends."""
        while self.sessions:
            self.sessions.pop().shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(reply: Reply) -> Iterator[Server]:
    with Server(reply) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
