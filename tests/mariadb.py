"""MariaDB for the tests: the server in TABLEQUEUE_TEST_MARIADB_URL, or a private one."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import sqlalchemy as sa


def kind(kind: Callable[..., Any], server: Callable[[], Any]) -> Any:
    """The entry of KINDS."""
    return kind(
        "mariadb",
        lambda request: request.getfixturevalue("mariadb_url"),
        crowd=16,
        side_by_side=True,
        explain="explain ",
        sorts="filesort",
        analyze="analyze table ",
        dict_rows=_dict_rows,
        rows_attribute="cursorclass",
        server=server,
        number=lambda dbapi: dbapi.thread_id(),
        blocked=_blocked_threads,
        drop_schema="drop schema if exists {}",
        index_of=index_of,
        looks=1,
        lock="select id from {} for update",  # under REPEATABLE READ also of gaps
    )


def index_of(queue: Any, state: str) -> str:
    """One index contains all states. Another one contains the messages to claim, if they are not claimed by id."""
    own = state == "ready" and queue.definition.arrangement in ("due", "priority", "fair")
    return f"tq_{queue.name}__{'ready' if own else 'state'}"


def _blocked_threads(watch: sa.Connection) -> set[int]:
    # Not information_schema.innodb_trx, which caches its content for a tenth of a second.
    words = watch.exec_driver_sql("show engine innodb status").one()[2]
    # Before the first of them is the last deadlock, whose sessions waited then.
    heads = [transaction.partition("thread id ") for transaction in words.split("---TRANSACTION")[1:]]
    return {int(thread.split(",")[0]) for before, _, thread in heads if thread and "LOCK WAIT" in before}


def _dict_rows(connection: Any) -> Any:
    from pymysql.cursors import DictCursor

    return DictCursor(connection)


def programs() -> tuple[str, str] | None:
    """Return the programs that create a data folder and serve it. Debian has the latter in /usr/sbin."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    install, server = shutil.which("mariadb-install-db", path=path), shutil.which("mariadbd", path=path)
    return (install, server) if install and server else None


@contextmanager
def server(
    install: str, serve: str, connections: int, flushes: bool, extra: Sequence[str] = ()
) -> Iterator[tuple[str, Callable[[], None], Any]]:
    """Run a private server in a temporary folder. Yields its URL, and functions to start it again and to kill it."""
    folder = Path(tempfile.mkdtemp(prefix="tablequeue-tests-"))
    as_user: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # The log is on a disk. In /dev/shm InnoDB writes it as if that were persistent memory; without flushes, a kill may
    # then lose a commit that was acknowledged.
    log_folder = Path(tempfile.mkdtemp(prefix="tablequeue-tests-", dir="/var/tmp"))
    # A folder of its own for temporary tables, because a server that starts deletes those of others in /tmp.
    as_user["env"] = os.environ | {"TMPDIR": str(folder)}
    if os.getuid() == 0:
        # MariaDB refuses to run as root.
        account = pwd.getpwnam("mysql")
        for each in (folder, log_folder):
            os.chown(each, account.pw_uid, account.pw_gid)
        as_user |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    url = sa.URL.create("mariadb+pymysql", "root", host="127.0.0.1", port=_free_port(), database="tests")
    data = [f"--datadir={folder / 'data'}", f"--innodb-log-group-home-dir={log_folder}"]
    options = [f"--port={url.port}", "--bind-address=127.0.0.1", f"--socket={folder / 'socket'}"]
    options += [f"--log-error={folder / 'log'}", f"--pid-file={folder / 'pid'}", f"--max-connections={connections}"]
    options += extra
    # After a failed test a transaction may stay open, and the drop of its schema would wait for it for a day.
    options += ["--lock-wait-timeout=20"]
    if not flushes:
        options += ["--debug-no-sync", "--innodb-flush-log-at-trx-commit=2"]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        for last in (False, False, True):
            running.append(subprocess.Popen([serve, "--no-defaults", *data, *options], **as_user))
            try:
                return _await(url, running[-1])
            except sa.exc.OperationalError:
                if last or running[-1].poll() is None:
                    raise
            sleep(1)  # since the kill, the port may be that of another program's connection for a moment

    def kill() -> None:
        while running:
            process = running.pop()
            process.kill()
            process.wait()

    try:
        make = [install, "--no-defaults", *data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(make, **as_user, check=True)
        start()
        yield url.render_as_string(), start, kill
    finally:
        kill()
        for each in (folder, log_folder):
            shutil.rmtree(each, ignore_errors=True)


def _await(url: sa.URL, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers, and create the database of the URL."""
    engine = sa.create_engine(url.set(drivername="mysql+pymysql", database="mysql"))
    deadline = monotonic() + 60
    while True:
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql(f"create database if not exists {url.database}")
            return engine.dispose()
        except sa.exc.OperationalError:
            if server.poll() is not None or monotonic() > deadline:
                raise
            sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
