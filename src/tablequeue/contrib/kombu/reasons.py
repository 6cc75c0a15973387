"""Why a message is rejected. AMQP has no field for it, so the caller does not say."""

from __future__ import annotations

import sys
import traceback
from typing import Any

# Tasks of Celery that have raised Reject, with the exception, until their messages are rejected. Some messages were
# answered before and are never rejected, so the oldest entries are removed.
MOST = 1000
_rejected: dict[str, str] = {}


def watch() -> None:
    """Note which tasks of Celery raise Reject, if this process has Celery: a worker rejects their messages later."""
    if "celery.signals" in sys.modules:
        sys.modules["celery.signals"].task_failure.connect(_note, weak=False, dispatch_uid=__name__)


def reason(message: Any) -> str:
    """Return why a message is rejected: by the exception that the caller handles, or that its task has raised."""
    raised = _rejected.pop(message.headers.get("id", ""), None)
    if raised is None and (error := sys.exc_info()[1]) is not None:
        raised = _shown(error)
    return "rejected" if raised is None else f"rejected: {raised}"


def _note(task_id: str = "", exception: Any = None, **others: Any) -> None:
    if isinstance(exception, sys.modules["celery.exceptions"].Reject):
        _rejected[task_id] = _shown(exception)
        if len(_rejected) > MOST:
            del _rejected[next(iter(_rejected))]


def _shown(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()
