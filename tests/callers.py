"""The forms in which a caller passes `connection=`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.servers import Kind, Place


@dataclass
class Caller:
    """A caller's connection, as `connection=` takes it, and how the caller ends its transaction."""

    connection: Any
    commit: Callable[[], None]
    rollback: Callable[[], None]


def _connection(place: Place, kind: Kind) -> Iterator[Caller]:
    with place.sa_engine().connect() as connection:
        yield Caller(connection, connection.commit, connection.rollback)


def _session(place: Place, kind: Kind) -> Iterator[Caller]:
    with Session(place.sa_engine()) as session:
        yield Caller(session, session.commit, session.rollback)


def _registry(place: Place, kind: Kind) -> Iterator[Caller]:
    """The session of a thread or a request, as Flask-SQLAlchemy's `db.session`."""
    sessions = scoped_session(sessionmaker(place.sa_engine()))
    yield Caller(sessions, sessions.commit, sessions.rollback)
    sessions.remove()


def _dbapi(place: Place, kind: Kind) -> Iterator[Caller]:
    proxy = place.sa_engine().raw_connection()
    raw: Any = proxy.dbapi_connection
    yield Caller(raw, raw.commit, raw.rollback)
    proxy.close()


def _dbapi_dicts(place: Place, kind: Kind) -> Iterator[Caller]:
    if kind.dict_rows is None:
        pytest.skip("The driver's rows are what they are.")
    for caller in _dbapi(place, kind):
        setattr(caller.connection, kind.rows_attribute, kind.dict_rows)
        yield caller


CALLERS = {
    "connection": _connection,
    "session": _session,
    "registry of sessions": _registry,
    "dbapi": _dbapi,
    "dbapi with dict rows": _dbapi_dicts,
}
