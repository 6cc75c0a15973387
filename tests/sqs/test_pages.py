"""Web pages of elsewhere in a real Chromium: what they send to an endpoint of this machine does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tablequeue import Database, connect
from tests.sqs.support import client
from tests.web.conftest import browser

__all__ = ["browser"]

# Whatever a page can send by itself, without asking the endpoint first, to each of these operations.
SEND = """async ([address, queue]) => {
    const settled = []
    for (const action of ["PurgeQueue", "DeleteQueue"]) {
        const url = `${address}/?Action=${action}&Version=2012-11-05&QueueUrl=${queue}`
        for (const method of ["GET", "HEAD", "POST"])
            settled.push(fetch(url, {method, mode: "no-cors"}))
        for (const method of ["PUT", "DELETE", "OPTIONS", "PATCH"])
            settled.push(fetch(url, {method}))
        settled.push(new Promise(done => {
            const image = new Image()
            image.onload = image.onerror = done
            image.src = url
        }))
        navigator.sendBeacon(url, "")
    }
    return (await Promise.allSettled(settled)).length
}"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path / 'work.db'}") as database:
        yield database


@pytest.mark.parametrize("site", ["http://example.org/", "https://example.org/"])
def test_a_page_of_elsewhere_neither_purges_nor_deletes(
    browser: Browser, address: str, db: Database, site: str
) -> None:
    client(address).create_queue(QueueName="orders")
    queue = db.queue("orders")
    queue.push("an order")
    # A visitor who let the site reach this machine, where the browser asks.
    context = browser.new_context(permissions=["local-network-access"])
    page = context.new_page()
    page.route(site, lambda route: route.fulfill(body="<title>elsewhere</title>", content_type="text/html"))
    page.goto(site)
    for name in ("127.0.0.1", "localhost"):
        here = address.replace("127.0.0.1", name)
        assert page.evaluate(SEND, [here, f"{here}/000000000000/orders"]) == 16
    # A navigation of the page itself, and with it all that was sent before, is answered.
    page.goto(f"{address}/?Action=ListQueues&Version=2012-11-05")
    context.close()
    assert [message.payload for message in queue.peek(10)] == ["an order"]
