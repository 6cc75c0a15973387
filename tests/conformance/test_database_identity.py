"""A database has an identity: made once, whoever asks, and another one in each database and schema."""

from __future__ import annotations

import re

import pytest

from tablequeue import Database
from tablequeue.errors import QueueNotFound
from tests.servers import Place
from tests.support import refuses

pytestmark = pytest.mark.quick


def test_it_is_made_once_and_is_renewed_on_demand(place: Place) -> None:
    db = place.open()
    for ask in (db.identity, db.renew_identity):
        assert "no identity" in refuses(QueueNotFound, ask).cause
    db.create_queue("first")
    made = db.identity()
    assert re.fullmatch("[0-9a-f]{32}", made)
    db.create_topic("second")
    db.queue("first").drop()
    db.create_queue("first")
    assert place.open().identity() == made
    renewed = place.open().renew_identity()
    assert renewed != made
    assert re.fullmatch("[0-9a-f]{32}", renewed)
    assert db.identity() == renewed


def test_two_that_make_the_first_queue_agree(place: Place) -> None:
    one, other = place.open(), place.open()
    one.create_queue("first")
    other.create_queue("second")
    assert one.identity() == other.identity()


def test_each_database_has_its_own(db: Database, tmp_path: object) -> None:
    db.create_queue("work")
    elsewhere = Place(f"sqlite:///{tmp_path}/elsewhere.db", None)
    try:
        another = elsewhere.open()
        another.create_queue("work")
        assert another.identity() != db.identity()
    finally:
        elsewhere.close()
