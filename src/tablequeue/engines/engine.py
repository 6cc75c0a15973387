"""An engine: a database system with the operations on its queues, which are grouped in parts.

Engines differ by operations, not by single statements. By default an operation runs the text of its name. An
engine has a part of its own where an operation needs more than that.
"""

from __future__ import annotations

from typing import ClassVar

from tablequeue.engines.base import EngineBase
from tablequeue.engines.batches import Batches
from tablequeue.engines.catalogue import Catalogue
from tablequeue.engines.checks import Checks
from tablequeue.engines.dependencies import Dependencies
from tablequeue.engines.messages import Messages
from tablequeue.engines.moving import Moving
from tablequeue.engines.operation import declarations
from tablequeue.engines.parts import Part
from tablequeue.engines.pauses import Pauses
from tablequeue.engines.progress import ProgressReports
from tablequeue.engines.range_reads import RangeReads
from tablequeue.engines.ranges import Ranges
from tablequeue.engines.reads import Reads
from tablequeue.engines.schedules import Schedules
from tablequeue.engines.staging import Staging
from tablequeue.engines.streams import Streams
from tablequeue.engines.task_results import TaskResults
from tablequeue.engines.topics import Topics
from tablequeue.engines.user_tables import UserTables


class Engine(EngineBase):
    """One database system with its operations. No code outside of `engines` names a database system."""

    catalogue: ClassVar[Catalogue] = Catalogue()
    messages: ClassVar[Messages] = Messages()
    topics: ClassVar[Topics] = Topics()
    range_reads: ClassVar[RangeReads] = RangeReads()
    ranges: ClassVar[Ranges] = Ranges(messages, topics, range_reads)
    reads: ClassVar[Reads] = Reads()
    pauses: ClassVar[Pauses] = Pauses()
    schedules: ClassVar[Schedules] = Schedules()
    streams: ClassVar[Streams] = Streams()
    staging: ClassVar[Staging] = Staging()
    moving: ClassVar[Moving] = Moving()
    batches: ClassVar[Batches] = Batches()
    dependencies: ClassVar[Dependencies] = Dependencies()
    progress: ClassVar[ProgressReports] = ProgressReports()
    task_results: ClassVar[TaskResults] = TaskResults()
    user_tables: ClassVar[UserTables | None] = None
    """How it writes into tables of the user; None: it does not."""
    checks: ClassVar[Checks] = Checks()


OPERATIONS = declarations(part for part in vars(Engine).values() if isinstance(part, Part))
"""All operations, by name. `tablequeue sql`, Alembic's --sql, the scripts of rights and tests read them."""
