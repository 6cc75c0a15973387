"""To which queue or topic a copy or a stored position belongs: the identity of the database, and the name of the table.

Both never change. A name says less: a queue may be renamed, and another queue may get its name; a URL may lead to
another database tomorrow.
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
    """Return the identity of a queue or a topic, by one read of the database."""
    context = context_of(opened)
    engine = context.engine
    return Identity(context.runner.run(engine.catalogue.identity, engine.shared, {}), context.table.table_name)
