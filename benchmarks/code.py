"""The size of the code: lines and words, and the files and calls of Python that a verb goes through.

python -m benchmarks.code [URL ...]

The calls are counted on SQLite, and on the servers of the URLs: `mysql+pymysql://root@localhost/tests`. Their database
gets a queue, which is deleted again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

import tablequeue
from tablequeue import Queue

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tablequeue"
ENGINES = SOURCE / "engines"


def lines(folder: Path, pattern: str) -> list[str]:
    return [line for file in sorted(folder.rglob(pattern)) for line in file.read_text("utf-8").splitlines()]


def tests() -> str:
    """Return the number of tests as pytest collects them."""
    collect = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", "tests"]
    found = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=False)
    (number,) = re.findall(r"(?m)^(\d+)(?:/\d+)? tests? ", found.stdout)
    return f"{int(number):,}"


def sizes() -> Iterator[tuple[str, str]]:
    """Yield each measure of the files, and its value."""
    texts = "\n".join(lines(ENGINES, "*.sql"))
    python = [file for file in ENGINES.rglob("*.py") if file.name not in ("words.py", "conditions.py")]
    asked = sum(file.read_text("utf-8").count("definition.") for file in python)
    yield "lines of Python in src", f"{len(lines(SOURCE, '*.py')):,}"
    yield "lines of SQL in src", f"{len(lines(SOURCE, '*.sql')):,}"
    yield "lines of Python in engines", f"{len(lines(ENGINES, '*.py')):,}"
    yield "lines of Python in tests", f"{len(lines(ROOT / 'tests', '*.py')):,}"
    yield "`definition.` in engines", f"{asked}"
    yield "different lines of conditions", str(len({*re.findall(r"(?m)^ *-- (\[[^\]]+\])", texts)}))
    yield "different words in braces", str(len({*re.findall(r"\{(\w+)", texts)}))


def walked(call: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of a call, and through how many files and calls of the library it went."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            seen.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, f"{len({*seen})}/{len(seen)}"


def verbs(queue: Queue) -> Mapping[str, str]:
    """Return the files and calls of some verbs, once what is prepared at the first call is there."""
    found: dict[str, str] = {}
    for _ in range(3):
        _, found["push"] = walked(lambda: queue.push("x"))
        queue.push_many(["x"] * 9)
        claims, found["pop_many"] = walked(lambda: queue.pop_many(5))
        _, found["complete_many"] = walked(partial(queue.complete_many, claims))
        queue.complete_many(queue.pop_many(5))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("urls", nargs="*", metavar="URL", help="of a database on a server")
    parser.add_argument("--tests", action="store_true", help="collect the tests, too, which takes a minute")
    arguments = parser.parse_args()
    rows = [*sizes(), *([("tests", tests())] if arguments.tests else [])]
    with tempfile.TemporaryDirectory() as folder:
        for url in (f"sqlite:///{folder}/work.db", *arguments.urls):
            with tablequeue.connect(url) as database:
                queue = database.create_queue(f"code-{uuid4().hex[:8]}", payload="text")
                try:
                    counted = verbs(queue)
                finally:
                    queue.drop()
            name = sa.engine.make_url(url).get_backend_name()
            rows += [(f"files/calls of {verb} on {name}", value) for verb, value in counted.items()]
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:<{width}}  {value:>10}" for name, value in rows))


if __name__ == "__main__":
    main()
