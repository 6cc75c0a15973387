"""An endpoint for Amazon SQS in front of the queues of a database."""

from tablequeue.sqs.app import app

__all__ = ["app"]
