"""A transport for kombu, and so a broker for Celery: queues, exchanges and bindings in a database.

Import this module before the first connection, for instance where the Celery application is made. The URL of the broker
is `tablequeue+` and the URL of the database: `tablequeue+postgresql://user:password@host/database`.
"""

from kombu.transport import TRANSPORT_ALIASES

from tablequeue.contrib.kombu.channel import Channel
from tablequeue.contrib.kombu.store import in_transaction
from tablequeue.contrib.kombu.transport import Transport

TRANSPORT_ALIASES["tablequeue"] = f"{__name__}:Transport"

__all__ = ["Channel", "Transport", "in_transaction"]
