"""A slow connection to the server: data is delayed in each direction, and keeps its order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import sqlalchemy as sa


def by_way_of(url: str, port: int) -> str:
    """Return the URL of the same database at this port of this machine."""
    return sa.make_url(url).set(host="127.0.0.1", port=port).render_as_string(hide_password=False)


def forward(url: str, port: int, seconds: float, ended: Callable[[], bool]) -> None:
    """Forward data from the port to the server of the URL `seconds` later, until the connection ends."""
    there = sa.make_url(url)
    asyncio.run(_forward((there.host or "127.0.0.1", there.port or 0), port, seconds, ended))


async def _forward(there: tuple[str, int], port: int, seconds: float, ended: Callable[[], bool]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, to_server = await asyncio.open_connection(*there)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_late(reader, to_server, seconds), _late(upstream, writer, seconds))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        while not ended():
            await asyncio.sleep(0.1)


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Delay each piece independently: the next one starts while this one is on its way. The end comes last."""
    loop = asyncio.get_running_loop()
    try:
        while piece := await reader.read(1 << 16):
            loop.call_later(seconds, writer.write, piece)
    except OSError:
        pass
    finally:
        loop.call_later(seconds, writer.close)
