"""Kill the endpoint again and again while boto3 sends and receives, and account for every message.

    python -m tests.sqs.kills [--engines sqlite,postgresql,mariadb] [--kills 50]

Two clients send to a FIFO queue, and some messages twice; two send batches to a standard queue; two receive from each
queue and delete. All of them retry as boto3 does, and then again until they have an answer. It exits with 1 if
anything was lost, came again after its deletion was answered, or came out of order.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.places import PLACES
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers import Place
from tests.sqs.support import client
from tests.sqs.test_crashes import Program

KILLS = 50
GROUPS, SENDERS, RECEIVERS = 4, 2, 2
TWICE = 5
"""Each message of that number is sent twice to the FIFO queue."""
VISIBILITY = 10
ATTEMPTS = 4


class Account:
    """What was sent to a queue and received from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: Counter[str] = Counter()
        """Times that a body may have been sent: each retry may be one more."""
        self.acknowledged: set[str] = set()
        self.ids: dict[str, set[str]] = defaultdict(set)
        self.received: Counter[str] = Counter()
        self.deleted: set[str] = set()
        """Ids of messages."""
        self.order: dict[str, list[int]] = defaultdict(list)
        self.faults: list[str] = []

    def see(self, message: dict[str, Any], in_order: bool) -> None:
        body, id = message["Body"], message["MessageId"]
        group, number = body.rsplit(":", 1)
        with self.lock:
            if id in self.deleted:
                self.faults.append(f"{body} came after its deletion")
            if in_order and self.received[body] == 0:
                self.order[group].append(int(number))
            self.received[body] += 1
            self.ids[body].add(id)

    def judge(self, fifo: bool) -> list[str]:
        faults = [*self.faults]
        faults += [f"{body} is lost" for body in self.acknowledged - {*self.received}]
        faults += [f"{body} was never sent" for body in {*self.received} - {*self.sent}]
        most = Counter(dict.fromkeys(self.sent, 1)) if fifo else self.sent
        faults += [f"{body} is {len(ids)} messages" for body, ids in self.ids.items() if len(ids) > most[body]]
        if fifo:
            faults += [f"group {group} is not in order" for group, seen in self.order.items() if seen != sorted(seen)]
        return faults


class Load:
    """The clients."""

    def __init__(self, program: Program) -> None:
        self.program = program
        mine = client(program.url)
        visibility = {"VisibilityTimeout": str(VISIBILITY)}
        self.fifo = mine.create_queue(QueueName="kills.fifo", Attributes={"FifoQueue": "true"} | visibility)["QueueUrl"]
        self.standard = mine.create_queue(QueueName="kills", Attributes=visibility)["QueueUrl"]
        self.accounts = {self.fifo: Account(), self.standard: Account()}
        self.done = threading.Event()
        self.answers = 0
        self.failures: Counter[str] = Counter()

    def threads(self) -> list[threading.Thread]:
        calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        for number in range(SENDERS):
            calls += [(self._send_fifo, (number,)), (self._send_batches, (number,))]
        for url in (self.fifo, self.standard):
            calls += [(self._receive, (url,))] * RECEIVERS
        return [threading.Thread(target=call, args=given) for call, given in calls]

    def _client(self) -> Any:
        return client(self.program.url, attempts=ATTEMPTS)

    def _repeated(self, call: Callable[..., Any], tried: Callable[[int], None] = lambda n: None, **options: Any) -> Any:
        """Make a call until it is answered; `tried` learns of each time that a request was made."""
        while True:
            try:
                found = call(**options)
            except (BotoCoreError, ClientError) as error:
                code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
                self.failures[code] += 1
                tried(ATTEMPTS)
                time.sleep(0.3)  # leaves the processor to the program that starts
            else:
                tried(1 + found["ResponseMetadata"]["RetryAttempts"])
                self.answers += 1
                return found

    def _send_fifo(self, number: int) -> None:
        sqs, account, n = self._client(), self.accounts[self.fifo], 0
        while not self.done.is_set():
            group = f"{number}-{n % GROUPS}"
            body = f"{group}:{n}"
            for _ in range(2 if n % TWICE == 0 else 1):
                options = {"MessageGroupId": group, "MessageDeduplicationId": body, "MessageBody": body}
                self._repeated(
                    sqs.send_message,
                    lambda _, body=body: account.sent.update([body]),  # type: ignore[misc]
                    QueueUrl=self.fifo,
                    **options,
                )
            account.acknowledged.add(body)
            n += 1

    def _send_batches(self, number: int) -> None:
        sqs, account, n = self._client(), self.accounts[self.standard], 0
        while not self.done.is_set():
            bodies = [f"{number}:{each}" for each in range(n, n + 10)]
            entries = [{"Id": str(place), "MessageBody": body} for place, body in enumerate(bodies)]

            def tried(times: int, bodies: list[str] = bodies) -> None:
                account.sent.update(dict.fromkeys(bodies, times))

            self._repeated(sqs.send_message_batch, tried, QueueUrl=self.standard, Entries=entries)
            account.acknowledged.update(bodies)
            n += 10

    def _receive(self, url: str) -> None:
        sqs, account, empty = self._client(), self.accounts[url], 0
        most = 5 if url == self.fifo else 10
        while not (self.done.is_set() and empty > 1):
            began = time.monotonic()
            found = self._repeated(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=most, WaitTimeSeconds=1)
            messages = found.get("Messages", [])
            empty = 0 if messages or self._left(sqs, url) else empty + 1
            for message in messages:
                account.see(message, in_order=url == self.fifo)
                try:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                except (BotoCoreError, ClientError):
                    break  # the others of its group come after it
                if time.monotonic() - began < VISIBILITY:
                    account.deleted.add(message["MessageId"])

    def _left(self, sqs: Any, url: str) -> bool:
        if not self.done.is_set():
            return True
        found = self._repeated(sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["All"])["Attributes"]
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return any(found[name] != "0" for name in names)


def run(url: str, kills: int) -> tuple[str, list[str]]:
    """Return the numbers of one run, and what was wrong."""
    program = Program(Place(url, None))
    load = Load(program)
    threads = load.threads()
    try:
        for thread in threads:
            thread.start()
        for _ in range(kills):
            before = load.answers
            while load.answers < before + 60:
                time.sleep(0.02)
            program.kill()
            program.start()
    finally:
        load.done.set()
        for thread in threads:
            thread.join()
        program.kill()
    words, faults = [], []
    for url, account in load.accounts.items():
        fifo = url == load.fifo
        faults += account.judge(fifo)
        copies = sum(len(ids) - 1 for ids in account.ids.values())
        again = sum(account.received.values()) - sum(map(len, account.ids.values()))
        words.append(
            f"{'FIFO' if fifo else 'standard'}: {len(account.acknowledged)} sent, {len(account.received)} received, "
            f"{again} of them again, {copies} stored twice by a retried send"
        )
    return f"{kills} kills; {'; '.join(words)}; calls that failed after all retries: {dict(load.failures)}", faults


def main() -> None:
    kill_each(__doc__, run, KILLS)


def kill_each(what: str | None, run: Callable[[str, int], tuple[str, Sequence[str]]], kills: int) -> None:
    """Run the attack on each engine that the command line chooses. Exit with 1 if there are faults."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="sqlite,postgresql,mariadb")
    parser.add_argument("--kills", type=int, default=kills)
    arguments = parser.parse_args()
    wrong = 0
    for engine in arguments.engines.split(","):
        with PLACES[engine]() as url:
            words, faults = run(url, arguments.kills)
        print(f"{engine}: {words}; {len(faults)} faults", *faults[:10], sep="\n  ", flush=True)
        wrong += len(faults)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
