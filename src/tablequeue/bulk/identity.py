"""What a copy or a position elsewhere is of: a database, and in it the table of a queue or a topic.

Both are given once. A name says less: a queue may be renamed, and another one gets its name; a URL may lead to another
database tomorrow.
"""

from __future__ import annotations

from typing import NamedTuple

from tablequeue.consumer import Consumer
from tablequeue.ext import context_of
from tablequeue.topic import Topic


class Identity(NamedTuple):
    """database   see `Database.identity`.
    table      the table of the queue or the topic.
    """

    database: str
    table: str


def identity_of(opened: Consumer | Topic) -> Identity:
    """Return what a queue or a topic is, by one read of the database."""
    context = context_of(opened)
    engine = context.engine
    return Identity(context.runner.run(engine.catalogue.identity, engine.shared, {}), context.table.table_name)
