"""A handler in a module whose import fails in the process of a consumer, as the environment says, but not in tests."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tablequeue import Claim
from tablequeue.worker import Retry

TROUBLE = "TABLEQUEUE_TEST_TROUBLE"
FOLDER = "TABLEQUEUE_TEST_FOLDER"


class Odd(Retry):
    """An object that cannot be sent to another process."""

    def __reduce__(self) -> Any:
        raise TypeError("it stays where it is")


def handle(message: Claim) -> Any:
    """Write the id of this process into a file, then do what the payload says."""
    with Path(os.environ[FOLDER], "called").open("a") as called:
        called.write(f"{os.getpid()}\n")
    match message.payload:
        case "kill":
            os.kill(os.getpid(), 9)
        case "leave a process":
            if not os.fork():
                signal.alarm(30)  # ends this process if the tests leave it behind
                time.sleep(3600)
            os._exit(7)
        case "close all":
            os.closerange(3, 10_000)
        case "odd":
            return Odd(500, ValueError("odd"))
    return None


def wrapped(message: Claim) -> None: ...


hidden = wrapped


def wrapped(message: Claim) -> None:  # type: ignore[no-redef]
    """A second function of the same name."""


def import_with_trouble(trouble: str, folder: Path) -> None:
    first = not (folder / "importing").exists()
    (folder / "importing").touch()
    match trouble:
        case "wait":
            while not (folder / "go").exists():
                time.sleep(0.001)
        case "no module":
            import no_such_module  # type: ignore[import-not-found]  # noqa: F401
        case "raise":
            raise ValueError("of the module")
        case "exit":
            sys.exit(3)
        case "die":
            os._exit(9)
        case "die once" if first:
            os._exit(9)
        case "thread":
            threading.Thread(target=time.sleep, args=(3600,)).start()


if multiprocessing.parent_process() is not None and TROUBLE in os.environ:
    import_with_trouble(os.environ[TROUBLE], Path(os.environ[FOLDER]))
