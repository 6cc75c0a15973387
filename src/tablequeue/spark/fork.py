"""Has a reader of a stream forked by the process of `tablequeue.spark.forks`: `fork.py FOLDER MODULE`.

Spark starts a new process for each query, and takes this one for it. It passes its environment and its files on, and
ends with the fork, as the fork does with it. It imports next to nothing: PySpark and tablequeue take 1.6 s of a core.
If nobody forks, it becomes the reader itself.
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
