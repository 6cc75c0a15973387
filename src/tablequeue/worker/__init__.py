"""Workers: `Worker`, and the outcomes that handlers return."""

from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import DeadLetter, Done, Finished, Outcome, Retry, Snooze
from tablequeue.worker.pool import TimedOut
from tablequeue.worker.worker import Worker

__all__ = ["DeadLetter", "Done", "Finished", "Handler", "Outcome", "Retry", "Snooze", "TimedOut", "Worker"]
