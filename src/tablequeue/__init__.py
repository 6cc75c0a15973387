"""Queues in the database you already have, pipelines on Spark."""

from tablequeue import errors
from tablequeue.database import Database, connect
from tablequeue.definition import Backoff, Definition
from tablequeue.errors import Empty, LeaseLost, TablequeueError
from tablequeue.message import AttemptError, Claim, Message, NewMessage
from tablequeue.operations.doctor import Finding
from tablequeue.operations.stats import Activity, Stats, Times, Window
from tablequeue.payload import Unreadable
from tablequeue.queue import Queue

__all__ = [
    "Activity",
    "AttemptError",
    "Backoff",
    "Claim",
    "Database",
    "Definition",
    "Empty",
    "Finding",
    "LeaseLost",
    "Message",
    "NewMessage",
    "Queue",
    "Stats",
    "TablequeueError",
    "Times",
    "Unreadable",
    "Window",
    "connect",
    "errors",
]
