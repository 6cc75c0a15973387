"""Queues in migrations of Alembic: operations such as `op.create_queue`, proposals of autogenerate, and its hooks.

An `env.py` that imports this module has the operations; see docs/alembic.md.
"""

from tablequeue.alembic import proposing as proposing
from tablequeue.alembic.declared import declare, include_name, include_object

__all__ = ["declare", "include_name", "include_object"]
