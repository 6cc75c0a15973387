"""The process that forks the readers of streams. It is a fork of a daemon, and so has imported what they need."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from importlib import import_module
from pathlib import Path
from threading import Thread

from pyspark.worker_util import get_sock_file_to_executor

from tablequeue.spark.fork import NAME, READER


def begin(folder: str) -> None:
    """Fork the process, which ends with this one. Its socket is in the folder, for this user alone."""
    os.setpgid(0, 0)  # the daemon ends the processes of its group
    listener = _listener(folder)
    daemon = os.getpid()
    if os.fork() == 0:
        try:
            import_module(READER)
            _serve(listener, daemon)
        finally:  # it must not run the daemon's clean-up
            os._exit(0)
    listener.close()


def _listener(folder: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    here, mask = Path.cwd(), os.umask(0o177)
    try:
        os.chdir(folder)  # the path of a socket must be short
        Path(NAME).unlink(missing_ok=True)
        listener.bind(NAME)
    finally:
        os.umask(mask)
        os.chdir(here)
    listener.listen()
    return listener


def _serve(listener: socket.socket, daemon: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener.settimeout(1)
    while os.getppid() == daemon:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            try:
                _read_for(connection)
            except BrokenPipeError:
                pass  # Java has ended
            except Exception:
                traceback.print_exc()
            return
        connection.close()


def _read_for(connection: socket.socket) -> None:
    """Take the place of the process at the other end of this connection, until either ends."""
    os.setpgid(0, 0)  # a daemon may begin anew, and the query goes on
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.settimeout(None)
    size, files, _, _ = socket.recv_fds(connection, 4, 4)
    with connection.makefile("rb") as request:
        module, environment = json.loads(request.read(int.from_bytes(size, "big")))
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.fchdir(files[3])
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = [module]
    Thread(target=_end_with, args=[connection], daemon=True).start()
    with get_sock_file_to_executor(timeout=None) as file:
        import_module(module).main(file, file)


def _end_with(connection: socket.socket) -> None:
    connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)
