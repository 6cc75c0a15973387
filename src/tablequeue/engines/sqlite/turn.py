"""The turns of the writers of one SQLite database: a lock on a separate file, which the kernel grants in order.

SQLite's own waiting (busy_timeout) sleeps and retries, so that it is a matter of luck which process gets the lock: with
64 processes, one ran 1 cycle in 4 s while another ran 1,500. The lock is on a file of its own, because closing any
descriptor of the database file would release SQLite's own locks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

# The files of all turns. A forked child closes them: otherwise a lock of its parent would outlive the parent.
_files: set[int] = set()


class Turn:
    """One connection's place in the queue of writers. Only one thread may use it at a time."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._path = f"{database}-lock"
        self._file: int | None = None
        self._waiter: _Waiter | None = None

    def within(self, patience: float, work: Callable[[], T]) -> T:
        """Do the work when the turn comes. Raise `TurnNotHad` if it has not come after `patience` seconds."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _files.add(self._file)
            _share(self._file, self._database)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if self._waiter is None:
                self._waiter = _Waiter(self._file)
            try:
                return self._waiter.run(patience, work)
            except TurnNotHad:
                self._file = self._waiter = None  # the thread owns them until it gets the lock
                raise
        try:
            return work()
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.end()
        elif self._file is not None:
            _close(self._file)
        self.forget()

    def forget(self) -> None:
        """In a forked child, where the file is closed and the thread does not exist: drop both."""
        self._file = self._waiter = None

    def holder(self) -> str:
        """Return a phrase that names the process whose turn it is, as far as the system tells."""
        try:
            inode = Path(self._path).stat()
            place = f"{os.major(inode.st_dev):02x}:{os.minor(inode.st_dev):02x}:{inode.st_ino}"
            locks = map(str.split, Path("/proc/locks").read_text().splitlines())
            pid = next(fields[4] for fields in locks if fields[1] == "FLOCK" and fields[5] == place)
            stopped = "T (stopped)" in Path(f"/proc/{pid}/status").read_text()
        except (OSError, IndexError, StopIteration):
            return "Another process"
        return f"The process {pid}, which is stopped," if stopped else f"The process {pid}"


class TurnNotHad(Exception):
    """The turn did not come in time. The work was not begun."""


class _Waiter:
    """A thread that waits for the lock, so that the caller can time out, and then does the caller's work.

    The kernel has no time-out for this lock. The thread does the work itself instead of handing over the lock: on a
    busy machine the other thread may start only milliseconds later, and no process could write meanwhile. With 32
    processes that gave 271 transactions a second instead of 1,000.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._asked, self._done = Lock(), Lock()
        self._asked.acquire()
        self._done.acquire()
        self._deciding = Lock()
        self._begun = self._given_up = False
        self._work: Callable[[], Any] = lambda: None
        self._result: Any = None
        self._error: BaseException | None = None
        Thread(target=self._run, name="tablequeue turn", daemon=True).start()

    def run(self, patience: float, work: Callable[[], T]) -> T:
        self._work, self._error = work, None
        self._asked.release()
        try:
            done = self._done.acquire(timeout=patience)
        except BaseException:  # an interrupt
            if not self._give_up():
                self._done.acquire()
            raise
        if not done:
            if self._give_up():
                raise TurnNotHad
            self._done.acquire()
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    def end(self) -> None:
        """Close the file and end the thread, which has no work now."""
        self._given_up = True
        self._asked.release()

    def _give_up(self) -> bool:
        with self._deciding:
            self._given_up = not self._begun
            return self._given_up

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            if self._given_up:
                break
            fcntl.flock(self._file, fcntl.LOCK_EX)
            with self._deciding:
                if self._given_up:
                    break
                self._begun = True
            try:
                self._result = self._work()
            except BaseException as error:
                self._error = error
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._begun = False
            self._done.release()
        _close(self._file)


def _share(file: int, database: str) -> None:
    """Give the file the mode of the database file, whatever the umask is, as SQLite does with its own files."""
    with suppress(OSError):  # somebody else's file, or a file system without modes
        now, wanted = os.fstat(file), os.stat(database)  # noqa: PTH116 (as the file, by what the kernel calls it)
        if os.geteuid() == 0 and (now.st_uid, now.st_gid) != (wanted.st_uid, wanted.st_gid):
            os.fchown(file, wanted.st_uid, wanted.st_gid)
        if (now.st_mode ^ wanted.st_mode) & 0o666:
            os.fchmod(file, wanted.st_mode & 0o666)


def _close(file: int) -> None:
    _files.discard(file)
    os.close(file)


def _close_all() -> None:
    while _files:
        os.close(_files.pop())


os.register_at_fork(after_in_child=_close_all)
