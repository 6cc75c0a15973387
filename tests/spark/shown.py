"""What Spark shows of itself to people: its pages, its REST interface, and the command lines of its processes.

Of the standard library alone: a pipeline of a test imports it on a cluster, from the folder that it is copied to.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

PARTS = (
    "environment",
    "jobs",
    "stages?details=true",
    "allexecutors",
    "sql?details=true&planDescription=true&length=1000",
    "executors/driver/threads",
)


def pages(base: str) -> dict[str, str]:
    """Every page under an address that another one links to, each in one order of its rows."""
    found: dict[str, str] = {}
    ahead = [f"{base}/"]
    while ahead:
        page = ahead.pop()
        if page in found:
            continue
        found[page] = _get(page)
        for link in re.findall(r'(?:href|src)="([^"#]+)', found[page]):
            there = urllib.parse.urljoin(page, link.replace("&amp;", "&"))
            # Not what changes something or only sorts, nor what would need a browser.
            if there.startswith(base) and not re.search(r"/static/|kill|[.]sort=|[.]pageSize=|\s", there):
                ahead.append(there)
    return found


def rest(base: str) -> dict[str, str]:
    """What is said by REST of the application whose pages are under an address."""
    list_of_them = f"{base}/api/v1/applications"
    found = {list_of_them: _get(list_of_them)}
    for application in json.loads(found[list_of_them]):
        for part in PARTS:
            address = f"{list_of_them}/{application['id']}/{part}"
            found[address] = _get(address)
    return found


def command_lines() -> dict[str, str]:
    """Of all processes of this machine."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[str(file)] = file.read_text(errors="replace")
        except OSError:
            continue  # it ended meanwhile
    return found


def files(*folders: Path) -> dict[str, str]:
    """The contents of all files in folders."""
    every = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {str(file): file.read_text("utf-8", "replace") for file in every}


def _get(address: str) -> str:
    try:
        with urllib.request.urlopen(address) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return str(error)
