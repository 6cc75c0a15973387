"""An engine: a database system, and the operations on its queues, in parts.

The seam between engines is the operation, not the statement. An operation runs the `.sql` file of its name. An engine
names a part of its own where an operation needs more than that.
"""

from __future__ import annotations

from typing import ClassVar

from tablequeue.engines.base import EngineBase
from tablequeue.engines.catalogue import Catalogue
from tablequeue.engines.checks import Checks
from tablequeue.engines.messages import Messages
from tablequeue.engines.reads import Reads
from tablequeue.engines.schedules import Schedules
from tablequeue.engines.staging import Staging
from tablequeue.engines.streams import Streams


class Engine(EngineBase):
    """One database system with its operations. Nothing above the engines names one."""

    catalogue: ClassVar[Catalogue] = Catalogue()
    messages: ClassVar[Messages] = Messages()
    reads: ClassVar[Reads] = Reads()
    schedules: ClassVar[Schedules] = Schedules()
    streams: ClassVar[Streams] = Streams()
    staging: ClassVar[Staging] = Staging()
    checks: ClassVar[Checks] = Checks()
