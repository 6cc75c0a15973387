"""What a message costs PostgreSQL: WAL, commits, statements and CPU; and what an unrelated query feels of a queue.

    python -m benchmarks.cost [--parts cost,bystander] [--repeats 3] [--full]

The server counts its WAL and the commits in it (pg_walinspect) and its statements (pg_stat_statements, with BEGIN and
COMMIT); Linux counts the CPU of its processes and of ours. Each contender pushes, and pops and completes, one message
at a time, then all at once; a message costs a share of that. A checkpoint comes before each step, so that all of them
pay for the first change of a page.

The bystander reads a row by its key and updates another one, every few milliseconds, in the database of the queue:
alone, beside a contender that pushes and drains without a pause, and beside the same while a snapshot is held. The rows
that the snapshot keeps are the contender's own; a faster one leaves more of them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import monotonic, perf_counter, process_time, sleep

import psycopg
import sqlalchemy as sa
from tests.servers import postgresql_bin, postgresql_server

from benchmarks.contenders import Contender, check, closing, payloads
from benchmarks.contenders.ours import Tablequeue
from benchmarks.contenders.peers import PEERS
from benchmarks.options import chosen, parser
from benchmarks.places import CONNECTIONS, LABELS
from benchmarks.results import Figure, save
from benchmarks.rounds import interleaved

MESSAGES, FULL = 200, 1_000
# Seconds beside the load before the snapshot, and with it; those of the second half count.
SECONDS, FULL_SECONDS = 4.0, 20.0
LOAD = 100
"""The messages that a contender pushes and drains at a time as the load beside the bystander."""
ROWS, PAUSE = 10_000, 0.005
CONTENDERS: Sequence[Callable[[str], Contender]] = (Tablequeue, *PEERS["postgresql"])
PARTS = ("cost", "bystander")
UNITS = {
    "WAL": "bytes/message",
    "commits": "commits/message",
    "statements": "statements/message",
    "CPU of the server": "ms/message",
    "CPU of the client": "ms/message",
}
CONDITIONS = (
    f"PostgreSQL; payloads of 100 bytes, {FULL:,} messages a round and step; the bystander's load by {LOAD}. Of each "
    "cost less is better. Every commit is flushed."
)

_processes = multiprocessing.get_context("spawn")
Step = Callable[[Contender, Sequence[str]], list[str] | None]
COMMITS = """select coalesce(sum(count), 0) from pg_get_wal_stats('{start}', '{end}', true)
    where "resource_manager/record_type" = 'Transaction/COMMIT'"""
STEPS: Mapping[str, Step] = {
    "push": lambda contender, messages: contender.push(messages),
    "pop + complete": lambda contender, messages: contender.drain_singly(len(messages)),
    "push at once": lambda contender, messages: contender.push_bulk(messages),
    "drain": lambda contender, messages: contender.drain(len(messages)),
}


class Meter:
    """Counts what the server has done, and what its processes and this one have used."""

    def __init__(self, url: str) -> None:
        self._connection = sa.create_engine(url, isolation_level="AUTOCOMMIT").connect()
        self._postmaster = int(Path(str(self._value("show data_directory")), "postmaster.pid").read_text().split()[0])
        self._connection.exec_driver_sql("create extension if not exists pg_stat_statements")
        self._connection.exec_driver_sql("create extension if not exists pg_walinspect")

    def cost(self, work: Callable[[], object], messages: int) -> dict[str, float]:
        """Return what each message cost while `work` ran."""
        self._connection.exec_driver_sql("checkpoint")
        self._connection.exec_driver_sql("select pg_stat_statements_reset()")
        start, server, client = self._value("select pg_current_wal_flush_lsn()"), self._server(), process_time()
        work()
        client, server = process_time() - client, self._server() - server
        statements = self._value("select sum(calls) from pg_stat_statements where query not like '%%pg_stat_%%'")
        end = self._value("select pg_current_wal_flush_lsn()")
        bytes_ = self._value(f"select pg_wal_lsn_diff('{end}', '{start}')")
        commits = self._value(COMMITS.format(start=start, end=end))
        tick = 1 / os.sysconf("SC_CLK_TCK")
        cpu = (max(each, tick) * 1000 for each in (server, client))
        found = (bytes_, commits, statements or 0, *cpu)
        return {what: float(value) / messages for what, value in zip(UNITS, found, strict=True)}

    def close(self) -> None:
        self._connection.close()

    def _value(self, query: str) -> str | int:
        value: str | int = self._connection.exec_driver_sql(query).scalar_one()
        return value

    def _server(self) -> float:
        """Return the seconds of CPU of the server's processes, those that have ended included."""
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            of_server = int(path.parent.name) == self._postmaster
            if of_server or int(fields[1]) == self._postmaster:
                ticks += sum(map(int, fields[11 : 15 if of_server else 13]))
        return ticks / os.sysconf("SC_CLK_TCK")


def costs(meter: Meter, contender: Contender, messages: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for what, step in STEPS.items():
        delivered: list[list[str] | None] = []
        each = meter.cost(lambda step=step, to=delivered: to.append(step(contender, messages)), len(messages))  # type: ignore[misc]
        if delivered[0] is not None:
            check(messages, delivered[0])
        found |= {f"{what}: {name}": value for name, value in each.items()}
    return found


def stand_by(url: str, pipe: Connection) -> None:
    """Read and update rows of a table of its own; send the times in ms since the last message of the pipe."""
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    random, times = Random(1), list[float]()
    with psycopg.connect(plain, autocommit=True) as connection:
        pipe.send([])
        while True:
            began = perf_counter()
            connection.execute("select note from bystander where id = %s", [random.randrange(ROWS)]).fetchone()
            connection.execute("update bystander set note = note + 1 where id = %s", [random.randrange(ROWS)])
            times.append((perf_counter() - began) * 1000)
            if pipe.poll(PAUSE):
                if pipe.recv() == "stop":
                    return
                pipe.send(times)
                times = []


@contextmanager
def loaded(contender: Contender) -> Iterator[list[int]]:
    """Push and drain without a pause. The list has the number of messages so far."""
    done, failed, count = Event(), list[BaseException](), [0]
    messages = payloads(LOAD)

    def run() -> None:
        try:
            while not done.is_set():
                contender.push_bulk(messages)
                check(messages, contender.drain(LOAD))
                count[0] += LOAD
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]


def bystander(url: str, contender: Contender, seconds: float) -> dict[str, float]:
    """Return the bystander's times, and the load, in each of three conditions."""
    ours, theirs = _processes.Pipe()
    process = _processes.Process(target=stand_by, args=(url, theirs))
    process.start()
    ours.recv()
    found: dict[str, float] = {}

    def measured(condition: str, count: Sequence[int] = (0,)) -> None:
        sleep(seconds / 2)
        ours.send("times")
        ours.recv()
        began, first = monotonic(), count[0]
        sleep(seconds / 2)
        ours.send("times")
        times = sorted(ours.recv())
        found[f"bystander {condition}: p50"] = times[len(times) // 2]
        found[f"bystander {condition}: p99"] = times[int(len(times) * 0.99)]
        found[f"load {condition}"] = max(count[0] - first, 1) / (monotonic() - began)

    measured("alone")
    del found["load alone"]
    with loaded(contender) as count:
        measured("beside the queue", count)
        with sa.create_engine(url, isolation_level="REPEATABLE READ").connect() as reader:
            reader.exec_driver_sql("select count(*) from bystander")
            measured("beside the queue, a held snapshot", count)
    ours.send("stop")
    process.join()
    return found


def unit(what: str) -> str:
    if what.startswith("load"):
        return "messages/s"
    return "ms" if what.startswith("bystander") else UNITS[what.partition(": ")[2]]


@contextmanager
def server() -> Iterator[str]:
    """Run a server that counts statements."""
    programs = postgresql_bin()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed. Run `make servers`.")
    with postgresql_server(programs, CONNECTIONS, flushes=True) as run:
        with sa.create_engine(run.url, isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql("alter system set shared_preload_libraries = 'pg_stat_statements'")
        run.kill()
        run.start()
        with sa.create_engine(run.url).begin() as connection:
            connection.exec_driver_sql("create table bystander (id integer primary key, note integer not null)")
            rows = sa.text("insert into bystander select n, 0 from generate_series(0, :last) as n")
            connection.execute(rows, {"last": ROWS - 1})
        yield run.url


def main() -> None:
    options = parser(__doc__, ["postgresql"])
    options.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=",".join(PARTS))
    arguments = chosen(options, full_repeats=3)
    messages = payloads(FULL if arguments.full else MESSAGES)
    seconds = FULL_SECONDS if arguments.full else SECONDS
    figures: list[Figure] = []
    with server() as url, closing([make(url) for make in CONTENDERS]) as contenders, ExitStack() as stack:
        meter = Meter(url)
        stack.callback(meter.close)
        kinds: dict[str, Callable[[Contender], dict[str, float]]] = {
            "cost": lambda one: costs(meter, one, messages),
            "bystander": lambda one: bystander(url, one, seconds),
        }
        for part in arguments.parts:
            works = {one.name: lambda one=one, part=part: kinds[part](one) for one in contenders}
            rounds = interleaved(works, arguments.repeats, part)
            for what in next(iter(rounds.values()))[0]:
                for name, found in rounds.items():
                    values = [each[what] for each in found]
                    figures.append(Figure(LABELS["postgresql"], what, name, unit(what), values))
    keep = arguments.full and set(arguments.parts) == set(PARTS)
    save("cost", "What a message costs", CONDITIONS, figures, keep=keep)


if __name__ == "__main__":
    main()
