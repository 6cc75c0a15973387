"""Simulate a distance between a client and a server on one machine: all data arrives later, in its order."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import sqlalchemy as sa

_processes = multiprocessing.get_context("spawn")


@contextmanager
def far_away(url: str, round_trip: float) -> Iterator[str]:
    """Yield the URL of the same server at that distance, a round trip in seconds; the URL itself if it is 0."""
    if not round_trip:
        yield url
        return
    parsed = sa.make_url(url)
    ours, theirs = _processes.Pipe()
    # The proxy has a process of its own, so that the measured code does not wait for its GIL.
    proxy = _processes.Process(target=_serve, args=(parsed.host, parsed.port, round_trip / 2, theirs), daemon=True)
    proxy.start()
    try:
        yield parsed.set(port=ours.recv()).render_as_string(hide_password=False)
    finally:
        proxy.kill()
        proxy.join()


def _serve(host: str, port: int, delay: float, ready: Connection) -> None:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            loop.call_later(delay, writer.write, data)
        loop.call_later(delay, writer.close)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(pump(reader, their_writer), pump(their_reader, writer), return_exceptions=True)

    async def main() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())
