"""A broker and a result backend for taskiq: see docs/taskiq.md."""

from tablequeue.contrib.taskiq.broker import Broker
from tablequeue.contrib.taskiq.results import ResultBackend

__all__ = ["Broker", "ResultBackend"]
