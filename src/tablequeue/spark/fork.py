"""Asks the process of `tablequeue.spark.forks` to fork a reader of a stream: `fork.py FOLDER MODULE`.

Spark starts this program for each query, as the process of the reader. It sends its environment and its open files to
the other process, which forks the reader. If the reader ends, this program ends, and the reverse. It imports next to
nothing: PySpark and tablequeue take 1.6 s of a core. If the other process does not run, this program becomes the reader
itself.
"""

from __future__ import annotations

import json
import os
import socket
import sys

# The module that Spark starts, and the name of the socket.
READER = "pyspark.sql.streaming.python_streaming_source_runner"
NAME = "forks"


def main(folder: str, module: str) -> None:
    here = os.open(".", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            os.chdir(folder)  # the path of a socket must be short
            connection.connect(NAME)
        except OSError:
            os.fchdir(here)
            os.execv(sys.executable, [sys.executable, "-m", module])
        request = json.dumps([module, dict(os.environ)]).encode()
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2, here])
        connection.sendall(request)
        connection.recv(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
