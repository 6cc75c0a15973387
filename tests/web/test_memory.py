"""The memory of `tablequeue serve`: what it takes does not grow with the payloads of the messages on its pages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tablequeue import connect
from tests.nightly import by_night
from tests.web.support import Client

MESSAGES, SIZE = 120, 1_000_000
SEARCHES = 3
# The program takes 80 MB, and held all the messages above for each search.
MOST = 150_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="There is no /proc.")
@pytest.mark.parametrize("state", by_night(["ready", "finished"], "finished".__eq__))
def test_large_payloads_take_no_memory_on_a_page_of_many(tmp_path: Path, state: str) -> None:
    """Neither lists nor searches."""
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with connect(url) as db:
        queue = db.create_queue("work")
        for _ in range(MESSAGES // 10):
            queue.push_many([{"text": "x" * SIZE}] * 10)
            if state == "finished":
                queue.complete_many(queue.pop_many(10))
    words = [sys.executable, "-m", "tablequeue", "--url", url, "--json", "serve", "--port", "0"]
    program = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert program.stdout is not None
    with program.stdout:
        client = Client(int(json.loads(program.stdout.readline())["url"].rstrip("/").rpartition(":")[2]))
        with ThreadPoolExecutor(SEARCHES) as pool:
            lists, searches = (
                {answer.status for answer in pool.map(client.get, [f"/queues/work/messages?state={query}"] * SEARCHES)}
                for query in (state, f"{state}&q=nothing")
            )
        # Not ru_maxrss: that counts the process which started this one.
        (most,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{program.pid}/status").read_text())
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 0
    for statuses in (lists, searches):
        assert statuses <= {200, 503}
        assert 200 in statuses
    assert int(most) * 1024 < MOST
