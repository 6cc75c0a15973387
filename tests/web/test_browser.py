"""The dashboard in a real Chromium."""

from __future__ import annotations

import re
from importlib import resources
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tablequeue import Database
from tablequeue.ext import context_of
from tests.nightly import by_night
from tests.support import claimed
from tests.web.support import HOSTILE, TOKEN, Client, bury, fill, serving

PATHS = (
    "/",
    "/workers",
    "/schedules",
    "/queues/work",
    "/queues/once",
    "/queues/plain",
    "/queues/reports",
    "/queues/work/messages?state=dead",
    "/queues/work/messages?state=finished",
    "/queues/work/messages/1",
    "/queues/empty/messages",
    "/login",
    "/nothing",
)


def test_hostile_messages_do_nothing(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work", groups=True, max_attempts=1)
    for number, words in enumerate(HOSTILE):
        context_of(queue).who = words[:200]
        queue.push({words: words}, group=words[:200], key=f"{number}{words}"[:200], headers={words: words})
        claimed(queue).fail(f"{words}\n{words}")
    for path in ("/", "/queues/work", "/queues/work/messages?state=dead"):
        page.goto(path)
        expect(page).not_to_have_title("owned")
        assert page.locator("main script, main img, h1:has-text('out')").count() == 0
    for id in range(1, len(HOSTILE) + 1):
        page.goto(f"/queues/work/messages/{id}")
        expect(page).to_have_title(f"work {id} · tablequeue")
        assert page.locator("main script, main img, main [onload], main [onerror]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits"


def test_chosen_dead_letters_are_redriven(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    a, b, _ = bury(queue, ["a", "b", "c"], "boom")
    page.goto("/")
    page.get_by_role("link", name="3", exact=True).click()
    for id in (a, b):
        page.get_by_label(f"Message {id}").check()
    page.get_by_role("button", name="Redrive selected").click()
    expect(page.get_by_text("2 redriven.")).to_be_visible()
    assert (queue.stats().ready, queue.stats().dead) == (2, 1)


def test_all_messages_of_a_page_are_selected_at_once(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, ["a", "b", "c"])
    page.goto("/queues/work/messages?state=dead")
    every = page.get_by_label("all 3 on this page")
    every.check()
    page.get_by_label("Message 2").uncheck()
    expect(every).not_to_be_checked()
    page.get_by_role("button", name="Redrive selected").click()
    expect(page.get_by_text("2 redriven.")).to_be_visible()
    assert [message.id for message in queue.dead()] == [2]


def test_the_filter_needs_no_mouse(page: Page, queues: Database) -> None:
    for name in ("emails", "invoices"):
        queues.create_queue(name)
    queues.queue("invoices").push(1)
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("voi/")
    renewed(page)
    expect(page.get_by_label("Name")).to_have_value("voi/")
    page.keyboard.press("Backspace")
    page.keyboard.press("Tab")
    page.keyboard.type("ready")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?window=300&q=voi&state=ready$"))
    assert page.locator("tbody th a").all_inner_texts() == ["invoices"]


def test_a_purge_is_asked_twice(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, ["a", "b"])
    page.goto("/queues/work/messages?state=dead")
    page.get_by_label("all 2 dead letters instead").check()
    page.get_by_text("Purge selected").click()
    assert queue.stats().dead == 2
    page.get_by_role("button", name="Yes, delete permanently").click()
    expect(page.get_by_text("2 purged.")).to_be_visible()
    assert queue.stats().dead == 0


def test_a_queue_is_paused_and_a_message_rescheduled(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work")
    id = queue.push("a", delay=1000)
    page.goto("/queues/work")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.goto(f"/queues/work/messages/{id}")
    page.get_by_label("ready in").fill("0")
    page.get_by_role("button", name="Reschedule").click()
    expect(page.get_by_text("1 rescheduled.")).to_be_visible()
    assert queue.pop() is None
    page.goto("/queues/work")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert claimed(queue).id == id


def test_a_batch_is_cancelled(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work", batches=True)
    ids = []
    for payloads in ("ab", "cde"):
        with queue.batch() as batch:
            batch.push_many([*payloads])
        ids.append(batch.id)
    claimed(queue)
    page.goto("/queues/work")
    expect(page.get_by_role("img", name="1 in progress, 1 waiting")).to_be_visible()
    page.get_by_label(f"Cancel batch {ids[1]}").click()
    assert len(queue.batches()) == 2
    page.get_by_role("button", name="Yes, cancel it").click()
    expect(page.get_by_text("3 cancelled or told to stop.")).to_be_visible()
    assert [batch.id for batch in queue.batches()] == ids[:1]


def test_a_page_follows_the_queue(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work")
    page.goto("/queues/work")
    tile = page.locator(".tile", has_text="ready").locator("b")
    expect(tile).to_have_text("0")
    queue.push_many(range(7))
    expect(tile).to_have_text("7")


def renewed(page: Page) -> None:
    """Renew the page. An answer that is on its way may be from before the test's last change: it comes first."""
    page.evaluate("async () => { while (asking) await new Promise((done) => setTimeout(done)); await refresh(); }")


FOCUSED = "document.activeElement.getAttribute('href')"


def test_the_focus_and_a_selection_survive_the_refresh(page: Page, queues: Database) -> None:
    """Also beside a queue that comes, one that goes, and a notice above them."""
    for name in ("b", "d", "f"):
        queues.create_queue(name, lease=59).push(1)
    page.goto("/")
    link = page.locator("tr[data-key=d] td[data-label=ready] a")
    link.focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('tr[data-key=d] th a'))")
    there = page.evaluate(FOCUSED)
    assert there == "/queues/d/messages?state=ready"
    for change in (
        lambda: queues.queue("d").push(2),
        lambda: queues.create_queue("a"),
        lambda: queues.create_queue("c"),
        lambda: queues.queue("b").drop(),
        lambda: queues.queue("f").pause(),
        lambda: queues.create_topic("z").subscribe("mail"),
        lambda: queues.queue("f").drop(),
    ):
        change()
        renewed(page)
        assert page.evaluate(FOCUSED) == there
        assert page.evaluate("getSelection().toString()") == "d"
        names = page.locator("tbody th a").all_inner_texts()
        assert sorted(names) == sorted([*queues.queues(), *(each.partition("/")[2] for each in queues.subscriptions())])
    expect(link).to_have_text("2")
    page.goto("/queues/d")
    page.locator(".tile", has_text="dead").focus()
    queues.queue("d").pause()
    renewed(page)
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert page.evaluate(FOCUSED) == "/queues/d/messages?state=dead"


def test_a_renewed_page_is_the_page(page: Page, queues: Database) -> None:
    """Whatever changed: what is shown is what a browser would show that loads it now."""
    fill(queues)
    shown = "document.querySelector('main').innerHTML"
    for path in ("/", "/queues/work", "/queues/reports", "/topics/events/mail"):
        page.goto(path)
        bury(queues.create_queue("aa", max_attempts=1, if_exists="alter"), [1])
        for name in ("work", "reports"):
            queue = queues.queue(name)
            queue.push(1)
            (queue.resume if queue.stats().paused_until else queue.pause)()
        queues.subscription("events/mail").pop()
        renewed(page)
        again = page.context.new_page()
        again.goto(path)
        ages = re.compile(r">[^<>]* (?:ms|s|min|h)(?: old)?[^<>]*<|<path[^>]*>|<svg.*?</svg>", re.DOTALL)
        assert ages.sub("", page.evaluate(shown)) == ages.sub("", again.evaluate(shown)), path
        again.close()


def test_a_page_says_that_it_is_old(browser: Browser, queues: Database) -> None:
    queues.create_queue("work").push(1)
    with serving(queues) as client:
        context = browser.new_context(base_url=f"http://127.0.0.1:{client.port}")
        page = context.new_page()
        for path in ("/", "/queues/work"):
            page.goto(path)
            stale = page.locator(".stale")
            expect(stale).to_be_hidden()
            page.route("**/*", lambda route: route.abort())
            renewed(page)
            expect(stale).to_contain_text(re.compile(r"The dashboard does not answer\. These .* of \d\d:\d\d:\d\d\."))
            page.unroute_all()
            page.route("**/*", lambda route: route.fulfill(status=503))
            renewed(page)
            expect(stale).to_contain_text("answers with the error 503")
            page.unroute_all()
            renewed(page)
            expect(stale).to_be_hidden()
        context.close()


def test_who_is_logged_out_meanwhile_is_told(browser: Browser, queues: Database) -> None:
    with serving(queues, token=TOKEN) as client:
        context = browser.new_context(base_url=f"http://127.0.0.1:{client.port}")
        page = context.new_page()
        page.goto("/")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("There are no queues yet.")).to_be_visible()
        context.clear_cookies()
        renewed(page)
        expect(page.locator(".stale")).to_contain_text("You are not logged in any more")
        context.close()


def test_one_and_all_are_all(page: Page, queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, ["a", "b", "ab"])
    page.goto("/queues/work/messages?state=dead")
    page.get_by_role("searchbox").fill("b")
    page.get_by_role("button", name="Search").click()
    page.get_by_label("Message 2").check()
    page.get_by_label("all 2 found instead").check()
    page.get_by_role("button", name="Redrive selected").click()
    expect(page.get_by_text("2 redriven.")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_value("b")
    assert [message.payload for message in queue.dead()] == ["a"]


def test_the_login(browser: Browser, queues: Database) -> None:
    queues.create_queue("work")
    with serving(queues, token=TOKEN, loopback=False) as client:
        context = browser.new_context(base_url=f"http://127.0.0.1:{client.port}")
        page = context.new_page()
        page.goto("/queues/work?window=3600")
        page.get_by_label("Token").fill("not the token at all")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("The token is wrong.")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"http://127.0.0.1:{client.port}/queues/work?window=3600")
        page.get_by_role("button", name="log out").click()
        page.goto("/")
        expect(page).to_have_title("Log in · tablequeue")
        context.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_every_page_fits_and_can_be_read(
    browser: Browser, client: Client, queues: Database, width: int, scheme: Literal["light", "dark"]
) -> None:
    fill(queues)
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{client.port}",
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
    )
    page = context.new_page()
    for path in PATHS:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.evaluate(CONTRASTS) == [], path
    context.close()


TAGS = re.compile(r"\.tag\.(\w+)")


@pytest.mark.parametrize("scheme", by_night(["light", "dark"], "dark".__eq__))
def test_every_tag_can_be_read(
    browser: Browser, client: Client, queues: Database, scheme: Literal["light", "dark"]
) -> None:
    """On all pages to which links lead; and each tag that the style has is on one of them."""
    fill(queues)
    queues.queue("groups").pause()
    work = queues.queue("work")
    work.cancel([message.id for message in work.peek(1)])
    context = browser.new_context(base_url=f"http://127.0.0.1:{client.port}", color_scheme=scheme)
    page = context.new_page()
    todo, seen, kinds, tags = {"/"}, set(), {"/"}, set()
    while todo:
        path = todo.pop()
        seen.add(path)
        page.goto(path)
        assert page.evaluate(CONTRASTS) == [], path
        tags |= {*page.evaluate("[...document.querySelectorAll('.tag')].map((tag) => tag.className)")}
        for link in page.evaluate("[...document.links].map((link) => link.pathname + link.search)"):
            kind = re.sub(r"/\d+$", "/ID", link) + (path if re.search(r"/\d+$", link) else "")
            if kind not in kinds and not re.search("/payload$|window=|from=", link):
                kinds.add(kind)  # of the messages on a page, the first one
                todo.add(link)
    named = {*TAGS.findall((resources.files("tablequeue.web") / "static" / "style.css").read_text())}
    assert len(seen) > 40
    assert named <= {name.partition(" ")[2] for name in tags}
    context.close()


def test_the_pages_need_no_script(browser: Browser, client: Client, queues: Database) -> None:
    fill(queues)
    context = browser.new_context(base_url=f"http://127.0.0.1:{client.port}", java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.get_by_role("link", name="work", exact=True).click()
    page.locator(".tile", has_text="dead").click()
    page.get_by_role("searchbox").fill("last line")
    page.get_by_role("button", name="Search").click()
    page.locator("tbody a").first.click()
    expect(page.get_by_text("attempt 1 failed")).to_be_visible()
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 redriven.")).to_be_visible()
    context.close()


# Texts whose contrast with their background is less than 4.5, the minimum of WCAG AA.
CONTRASTS = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, place) => sum + v * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest("svg")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${node.tagName} ${node.textContent.trim().slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return found;
}"""
