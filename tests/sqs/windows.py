"""Kill the endpoint while ids of a FIFO queue are sent again, in their window and after it, and visibility changes.

    python -m tests.sqs.windows [--engines sqlite,postgresql,mariadb] [--kills 10]

The window of deduplication ids is 2 seconds. Each sender has ids of its own, and sends each of them again and again. A
receiver deletes a message, makes it visible at once, or leaves it to its visibility timeout, also in the middle of what
it got. It exits with 1 if a send was answered whose message never came, if an id was told twice as two messages within
its window, or as one beyond it, if a message came after its deletion, or if a group came out of order.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.servers import Place
from tests.sqs.kills import kill_each
from tests.sqs.support import client
from tests.sqs.test_crashes import Program

WINDOW, VISIBILITY = 2.0, 3
SENDERS, RECEIVERS, GROUPS, IDS = 2, 2, 3, 6


class Attack:
    def __init__(self, program: Program, place: Place) -> None:
        self.program = program
        mine = client(program.url)
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(VISIBILITY)}
        self.url = mine.create_queue(QueueName="windows.fifo", Attributes=attributes)["QueueUrl"]
        place.open().queue("windows.fifo").alter(unique_for=WINDOW)
        self.acknowledged: set[str] = set()
        for number in range(4):  # until the endpoint has seen it, too, which looks once a second
            options = {"MessageBody": "x", "MessageGroupId": "first", "MessageDeduplicationId": f"first-{number}"}
            self.acknowledged.add(mine.send_message(QueueUrl=self.url, **options)["MessageId"])
            time.sleep(0.5)
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.received: Counter[str] = Counter()
        self.deleted: set[str] = set()
        self.order: dict[str, list[int]] = {}
        self.faults: list[str] = []
        self.answers = self.again = 0

    def repeated(self, call: Any, **options: Any) -> Any:
        while True:
            try:
                found = call(**options)
            except (BotoCoreError, ClientError) as error:
                if isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    raise
                time.sleep(0.2)
            else:
                self.answers += 1
                return found

    def send(self, number: int) -> None:
        sqs, dice, n = client(self.program.url, attempts=2), random.Random(number), 0
        first: dict[str, tuple[str, float, float]] = {}
        while not self.done.is_set():
            id, n = f"{number}-{dice.randrange(IDS)}", n + 1
            group = f"g{int(id.rpartition('-')[2]) % GROUPS}"
            options = {"MessageGroupId": group, "MessageDeduplicationId": id, "MessageBody": str(n)}
            began = time.monotonic()
            told = self.repeated(sqs.send_message, QueueUrl=self.url, **options)["MessageId"]
            ended = time.monotonic()
            known, since, until = first.get(id, ("", 0.0, 0.0))
            if told != known and known and ended < since + WINDOW:
                self.faults.append(f"{id} is two messages within {ended - since:.2f} s")
            if told == known and began > until + WINDOW:
                self.faults.append(f"{id} is the message of {began - until:.2f} s ago")
            if told != known:
                first[id] = told, began, ended
            else:
                self.again += 1
            self.acknowledged.add(told)
            time.sleep(0.02)

    def receive(self, number: int) -> None:
        sqs, dice, empty = client(self.program.url, attempts=2), random.Random(-number), 0
        while not (self.done.is_set() and empty > VISIBILITY + 1):
            began = time.monotonic()
            found = self.repeated(
                sqs.receive_message, QueueUrl=self.url, MaxNumberOfMessages=5, WaitTimeSeconds=1, **ALL
            )
            messages = found.get("Messages", [])
            empty = 0 if messages else empty + 1
            with self.lock:
                for message in messages:
                    self.see(message)
            for message in messages:
                handle = {"QueueUrl": self.url, "ReceiptHandle": message["ReceiptHandle"]}
                way = dice.random()
                try:
                    if way < 0.15:
                        sqs.change_message_visibility(**handle, VisibilityTimeout=0)
                    elif way > 0.05 + 0.15:
                        sqs.delete_message(**handle)
                        if time.monotonic() - began < VISIBILITY:
                            with self.lock:
                                self.deleted.add(message["MessageId"])
                except (BotoCoreError, ClientError):
                    continue

    def see(self, message: dict[str, Any]) -> None:
        id = message["MessageId"]
        if id in self.deleted:
            self.faults.append(f"{id} came after its deletion")
        if not self.received[id]:
            seen = self.order.setdefault(message["Attributes"]["MessageGroupId"], [0])
            if int(message["Attributes"]["SequenceNumber"]) < seen[-1]:
                self.faults.append(f"{id} came after one behind it")
            seen.append(int(message["Attributes"]["SequenceNumber"]))
        self.received[id] += 1


ALL: dict[str, Any] = {"MessageSystemAttributeNames": ["All"]}


def run(url: str, kills: int) -> tuple[str, list[str]]:
    """Return the numbers of one run, and what was wrong."""
    place = Place(url, None)
    program = Program(place)
    attack = Attack(program, place)
    threads = [threading.Thread(target=attack.send, args=(number,)) for number in range(SENDERS)]
    threads += [threading.Thread(target=attack.receive, args=(number,)) for number in range(RECEIVERS)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(kills):
            before = attack.answers
            while attack.answers < before + 100:
                time.sleep(0.02)
            program.kill()
            program.start()
    finally:
        attack.done.set()
        for thread in threads:
            thread.join()
        program.kill()
    faults = attack.faults + [f"{id} is lost" for id in attack.acknowledged - {*attack.received}]
    words = (
        f"{kills} kills; {len(attack.acknowledged)} messages, {attack.again} sends of them again, "
        f"{sum(attack.received.values())} receives"
    )
    return words, faults


if __name__ == "__main__":
    kill_each(__doc__, run, 10)
