"""Fixtures: `queues` is a SQLite database, `client` uses a dashboard of it, `browser` is Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, Playwright, expect, sync_playwright

from tablequeue import Database, connect
from tests.web.support import Client, serving

# Instead of five seconds, which a busy machine may need for a page.
expect.set_options(timeout=60_000)


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path / 'work.db'}") as database:
        yield database


@pytest.fixture
def client(queues: Database) -> Iterator[Client]:
    """A client of a dashboard that allows actions."""
    with serving(queues, allow_actions=True) as client:
        yield client


@contextmanager
def chromium(playwright: Playwright, *arguments: str) -> Iterator[Browser]:
    """Run the machine's Chromium."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("Chromium is not installed.")
    # The sandbox of Chromium does not start as root.
    words = [*arguments, *(["--no-sandbox"] if os.getuid() == 0 else [])]
    browser = playwright.chromium.launch(executable_path=program, args=words)
    yield browser
    browser.close()


# Not for the session: Playwright runs an event loop, in which asyncio.run of other tests would fail.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, client: Client) -> Iterator[Page]:
    """A page of the dashboard. Any error in the browser fails the test."""
    context = browser.new_context(base_url=f"http://127.0.0.1:{client.port}")
    page = context.new_page()
    complaints: list[str] = []

    def refuse(dialog: Dialog) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", refuse)
    yield page
    context.close()
    assert complaints == []
