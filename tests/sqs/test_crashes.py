"""The endpoint is killed while clients send and receive: nothing is lost, and FIFO order and deduplication hold."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers import Place
from tests.sqs.support import client
from tests.sqs.test_messages import fifo

KILLS = 2
GROUPS = 4


class Program:
    """`tablequeue sqs`, which can be killed and started again at the same port."""

    def __init__(self, place: Place) -> None:
        schema = [] if place.schema is None else ["--schema", place.schema]
        self._command = [sys.executable, "-m", "tablequeue", "--url", place.url, *schema, "sqs", "--json", "--port"]
        self._port = "0"
        self.start()

    def start(self) -> None:
        self._program = subprocess.Popen([*self._command, self._port], stdout=subprocess.PIPE, text=True)
        assert self._program.stdout is not None
        self.url = json.loads(self._program.stdout.readline())["url"]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        self._program.kill()
        self._program.wait()
        assert self._program.stdout is not None
        self._program.stdout.close()


@pytest.fixture
def program(place: Place) -> Iterator[Program]:
    program = Program(place)
    yield program
    program.kill()


def repeated(call: Callable[..., Any], **options: Any) -> Any:
    """Make a call until it is answered, as an SDK does."""
    while True:
        try:
            return call(**options)
        except (BotoCoreError, ClientError):
            time.sleep(0.05)  # so as not to take the processor from the program that starts


def test_a_kill_loses_nothing_and_keeps_the_order(program: Program, tmp_path: Path) -> None:
    url = fifo(client(program.url), VisibilityTimeout="1")
    sent: list[int] = []
    done, first = threading.Event(), dict[int, list[int]]()
    deleted, again = set[int](), set[int]()

    def send() -> None:
        sqs = client(program.url)
        for n in count():
            if done.is_set():
                return
            options = {"MessageGroupId": str(n % GROUPS), "MessageDeduplicationId": str(n), "MessageBody": str(n)}
            repeated(sqs.send_message, QueueUrl=url, **options)
            sent.append(n)

    def receive() -> None:
        sqs = client(program.url)
        empty = 0
        while not (done.is_set() and empty > 2):
            messages = repeated(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=5, WaitTimeSeconds=1)
            empty = 0 if messages.get("Messages") else empty + 1
            for message in messages.get("Messages", []):
                n = int(message["Body"])
                order = first.setdefault(n % GROUPS, [])
                if n not in order:
                    order.append(n)
                if n in deleted:
                    again.add(n)
                # Its visibility timeout may have ended meanwhile: then it comes again.
                try:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                except (BotoCoreError, ClientError):
                    break
                deleted.add(n)

    threads = [threading.Thread(target=each) for each in (send, receive)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(KILLS):
            before = len(sent)
            while len(sent) < before + 20:
                done.wait(0.01)
            program.kill()
            program.start()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert sorted(n for order in first.values() for n in order) == sent
    assert all(order == sorted(order) for order in first.values())
    assert again == set(), "only what a kill left unanswered came twice"
