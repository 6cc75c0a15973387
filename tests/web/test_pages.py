"""The pages, on every engine."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote

import pytest

from tablequeue import Backoff, Database, Definition, Rate, SubscriptionDefinition
from tablequeue.ext import context_of
from tablequeue.verbs import stats as numbers
from tablequeue.verbs.readable import duration, number, rate
from tablequeue.web import search
from tablequeue.web.facts import FACTS
from tests.nightly import by_night
from tests.servers import KINDS
from tests.support import at, claimed
from tests.web.support import HOSTILE, Client, bury, fill, serving


@pytest.fixture
def full(db: Database) -> Iterator[Client]:
    """A dashboard with a queue of each kind, on each engine."""
    fill(db)
    with serving(db) as client:
        yield client


def links(text: str) -> set[str]:
    return set(re.findall(r'href="(/[^"#]*)"', text.replace("&amp;", "&")))


def walked(client: Client) -> set[str]:
    """Follow every link of the dashboard. Return their paths."""
    todo, seen = {"/"}, set[str]()
    while todo:
        path = todo.pop()
        seen.add(path)
        answer = client.get(path)
        assert answer.status == 200, path
        todo |= links(answer.text) - seen
    return seen


@pytest.mark.parametrize(
    "kind", by_night(KINDS, lambda kind: kind.name in ("postgresql", "mssql")), ids=lambda kind: kind.name
)
def test_every_link_leads_somewhere(full: Client) -> None:
    seen = walked(full)
    assert len(seen) > 60
    assert {"/queues/groups/messages?state=blocked", "/queues/work/messages/1/payload"} <= seen


def test_the_overview_has_the_numbers_of_every_queue(full: Client) -> None:
    text = full.get("/").text
    for name in ("work", "groups", "once", "plain", "empty"):
        assert f'href="/queues/{name}?window=300"' in text
    assert "1 blocked" in text
    assert "1 lost" in text
    assert "keeps no history" in text
    assert "read-only" in text


@pytest.mark.parametrize(
    "options",
    [
        {"order": "priority", "expires": 4321, "rate": Rate(7, per=3600, burst=3), "concurrency": 12_345 // 9},
        {"strict": True, "dead_letter_to": "failed", "unique_for": 99, "results": True, "labels": {"<b>": "two"}},
        {"groups": "fair", "per_group": 3, "group_rate": Rate(9, burst=2), "batches": True, "dependencies": True},
        {"groups": True, "history": 7777, "backoff": Backoff(base=3, factor=4, cap=50, jitter=0.25), "payload": "text"},
        {"delivery": "at_most_once", "lease": 71, "max_attempts": 17},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_page_tells_the_whole_definition(client: Client, queues: Database, options: dict[str, Any]) -> None:
    """An operator who sees ready messages that nobody gets looks there."""
    queues.create_queue("failed")
    definition = queues.create_queue("work", **options).definition
    text = client.get("/queues/work").text.partition("<h2>Definition</h2>")[2]
    shown = dict(re.findall(r"<dt>(.*?)</dt><dd>(?:<a [^>]*>)?(.*?)(?:</a>)?</dd>", text))
    on = {field.name for field in dataclasses.fields(definition) if getattr(definition, field.name)}
    assert {FACTS[name][0] for name in on} == {*shown}
    assert "" not in shown.values()
    if "expires" in options:
        assert (shown["expires"], shown["rate"]) == ("72 min", "7 in 60 min, 3 at once")
    if "labels" in options:
        assert (shown["labels"], shown["dead letters go to"]) == ("&lt;b&gt; = two", "failed")
    if "backoff" in options:
        assert shown["backoff"] == "3 s \N{MULTIPLICATION SIGN} 4, at most 50 s, up to 25% less at random"


def test_a_page_has_the_sizes_of_its_tables(full: Client, db: Database) -> None:
    own = {size.table for size in db.sizes() if size.queue == "plain"} or {"the file"}
    assert {*re.findall(r'<tr data-key="(tq_\w+|the file)">', full.get("/queues/plain").text)} == own


def test_every_option_of_a_queue_has_a_place_on_its_page() -> None:
    names = {field.name for kind in (Definition, SubscriptionDefinition) for field in dataclasses.fields(kind)}
    assert names == {*FACTS}


FILTERED = {
    "q=OR": {"work", "reports"},
    "state=dead": {"work", "reports", "events/mail"},
    "q=work&state=dead": {"work"},
    "q=events": {"events/mail", "events/turns"},
    "q=ail": {"events/mail"},
    "state=paused": {"plain"},
    "q=none": set(),
}


def test_the_overview_is_filtered(full: Client, db: Database) -> None:
    db.queue("plain").pause()
    for query, found in FILTERED.items():
        text = full.get(f"/?window=3600&{query}").text
        assert {*re.findall(r'<tr data-key="([^"]*)">', text)} == found
        assert ("No queue is found." in text) is (not found)
        assert f"window=86400&amp;{query.replace('&', '&amp;')}" in text, "another window keeps the filter"


def test_a_filter_that_does_not_exist_is_refused(client: Client) -> None:
    answer = client.get("/?state=<b>")
    assert answer.status == 400
    assert "Choose one of: ready, scheduled" in answer.text


def test_the_overview_has_topics_with_their_subscriptions(full: Client) -> None:
    text = full.get("/").text
    assert 'href="/topics/events/mail?window=300"' in text
    (row,) = re.findall(r"<tr>(?:(?!<tr>).)*/topics/events/mail\?.*?</tr>", text, re.DOTALL)
    cells = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]
    assert cells[0] == "3", "the lag"
    assert cells[2:5] == ["1", "0", "1"], "in progress, retries, dead letters"
    assert "6 messages" in text
    assert "kept 60 min" in text
    assert "tablequeue topic subscribe silent/mail" in text


def test_a_subscription_has_the_pages_of_a_queue(full: Client) -> None:
    text = full.get("/topics/events/mail").text
    assert re.search(r"<b>3</b>lag", text)
    assert "as they became visible" in text
    assert "one by one in each group" in full.get("/topics/events/turns").text
    for state, expected in {"ready": 3, "in_progress": 1, "dead": 1, "finished": 1}.items():
        found = full.get(f"/topics/events/mail/messages?state={state}").text
        assert len(re.findall(r"messages/(\d+)\"", found)) == expected, state
    dead = full.get("/topics/events/mail/messages?state=dead").text
    assert "ValueError: no address" in dead
    assert full.get("/topics/events/nobody").status == 404
    assert full.get("/topics/silent/mail/messages").status == 404
    assert full.get("/queues/events").status == 404


def test_dead_letters_of_a_subscription_are_redriven_and_purged(client: Client, queues: Database) -> None:
    topic = queues.create_topic("events")
    mail = topic.subscribe("mail", max_attempts=1)
    topic.push_many(["a", "b"])
    for claim in mail.pop_many(2):
        claim.fail("no")
    path = "/topics/events/mail/messages?state=dead"
    first, second = (message.id for message in mail.dead())
    form = {"csrf": client.csrf(path), "verb": "redrive", "id": [str(first)]}
    answer = client.post("/topics/events/mail/dead", form)
    assert answer.headers["location"] == "/topics/events/mail/messages?state=dead&redriven=1"
    answer = client.post("/topics/events/mail/dead", form | {"verb": "purge", "id": [str(second)]})
    assert answer.headers["location"].endswith("purged=1")
    assert (mail.dead(), [message.id for message in mail.peek()]) == ([], [first])


def test_a_payload_of_a_subscription_is_downloaded(client: Client, queues: Database) -> None:
    topic = queues.create_topic("events", payload="text")
    topic.subscribe("mail")
    id = topic.push("hello")
    answer = client.get(f"/topics/events/mail/messages/{id}/payload")
    assert answer.text == "hello"
    assert f"filename*=UTF-8''events-mail-{id}" in answer.headers["content-disposition"]


def test_a_message_is_shown_with_its_timeline(full: Client) -> None:
    dead = full.get("/queues/work/messages?state=dead").text
    (path,) = {link for link in links(dead) if re.search(r"messages/\d+$", link)}
    assert "ValueError: the last line" in dead
    text = full.get(path).text
    for words in ("pushed", "attempt 1 failed", "first line\nValueError: the last line", "dead letter"):
        assert words in text
    assert "Redrive" not in text, "read-only"
    assert "&#34;trace&#34;: &#34;abc&#34;" in full.get(re.sub(r"\d+$", "6", path)).text


def test_what_waits_for_others_is_shown(client: Client, queues: Database) -> None:
    queue = queues.create_queue("letters", dependencies=True)
    first, second = queue.push_many([*"ab"])
    id = queue.push("c", after=[first, second])
    for page in ("?state=scheduled", f"/{id}"):
        text = client.get(f"/queues/letters/messages{page}").text
        assert "waits for 2 messages<" in text
        assert "9999" not in text


def test_progress_is_shown(client: Client, queues: Database) -> None:
    queue = queues.create_queue("letters")
    first, _ = queue.push_many([*"ab"])
    page = f"/queues/letters/messages/{first}"
    message = claimed(queue)
    claimed(queue)
    assert "% done" not in client.get("/queues/letters/messages?state=in_progress").text
    message.progress(0.4, {"row": "<b>4000</b>"})
    text = client.get("/queues/letters/messages?state=in_progress").text
    assert text.count('aria-label="40 % done"') == 1
    text = client.get(page).text
    assert 'aria-label="40 % done"' in text
    assert "&lt;b&gt;4000" in text
    message.complete()
    assert "% done" not in client.get(page).text


def test_a_message_is_found_wherever_it_is(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work")
    first, second = queue.push_many(["a", "b"])
    claimed(queue).complete()
    assert "finished" in client.get(f"/queues/work/messages/{first}").text
    assert "ready" in client.get(f"/queues/work/messages/{second}").text
    assert client.get("/queues/work/messages/3").status == 404
    assert client.get(f"/queues/work/messages/{1 << 80}").status == 404


def test_pages_follow_each_other(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work")
    ids = queue.push_many(range(250))

    def walk(state: str) -> list[int]:
        path, found = f"/queues/work/messages?state={state}", []
        while path:
            text = client.get(path).text
            found += [int(id) for id in re.findall(r'<th scope="row" class="n"><a href="[^"]*/(\d+)">', text)]
            (path,) = re.findall(r'class="next" href="([^"]+)"', text.replace("&amp;", "&")) or [""]
        return found

    assert walk("ready") == ids
    queue.complete_many(queue.pop_many(250))
    assert walk("finished") == ids[::-1]
    assert walk("ready") == []


def test_a_search_looks_everywhere_in_a_message(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work", groups=True, max_attempts=1)
    queue.push({"to": "Ada"}, group="one", key="order-1")
    queue.push({"to": "bob"}, group="two", key="order-2")

    def found(text: str, state: str = "ready") -> list[str]:
        answer = client.get(f"/queues/work/messages?state={state}&q={text}").text
        return re.findall(r'<th scope="row" class="n"><a href="[^"]*/(\d+)(?:\?q=[^"]*)?">', answer)

    assert found("") == ["1", "2"]
    assert found("ADA") == ["1"]
    assert found("order-2") == ["2"]
    assert found("two") == ["2"]
    assert found("nothing") == []
    claimed(queue).fail("Mailbox full")
    assert found("mailbox", "dead") == ["1"]
    assert "Message <a href=" in client.get("/queues/work/messages?q=1").text


def test_a_long_search_says_how_far_it_looked(
    client: Client, queues: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablequeue.web.search.MOST_READ", 50)
    queues.create_queue("work").push_many(f"number {n}" for n in range(80))
    text = client.get("/queues/work/messages?q=number+75").text  # digits alone may be in the producer's process id
    assert "50 messages searched, 0 found" in text
    (further,) = re.findall(r'class="next" href="([^"]+)"', text.replace("&amp;", "&"))
    assert "30 messages searched, 1 found" in client.get(further).text


def test_a_payload_is_downloaded_whole(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work", payload="text")
    id = queue.push("<b>" + "x" * 30_000)
    assert "10,003 more" in client.get(f"/queues/work/messages/{id}").text
    answer = client.get(f"/queues/work/messages/{id}/payload")
    assert answer.text == "<b>" + "x" * 30_000
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''work-{id}"


@pytest.mark.parametrize("name", ["100% é?#[a]&b=c", "'\"<b>\\+ ;", "%2e%2e"])
def test_a_name_in_links(client: Client, queues: Database, name: str) -> None:
    queue = queues.create_queue(name, max_attempts=1)
    topic = queues.create_topic(f"{name} log")
    topic.subscribe(name)
    queue.push_many(range(2))
    claimed(queue).fail("no")
    link, other = f"/queues/{quote(name)}", f"/topics/{quote(name)}%20log/{quote(name)}"
    assert {link, other} <= {path.partition("?")[0] for path in walked(client)}
    form = {"csrf": client.csrf(f"{link}/messages?state=dead"), "verb": "redrive", "all": "all"}
    answer = client.post(f"{link}/dead", form)
    assert answer.headers["location"] == f"{link}/messages?state=dead&redriven=1"
    assert "1 redriven" in client.get(answer.headers["location"]).text
    answer = client.get(f"{link}/messages/{queue.peek(1)[0].id}/payload")
    assert unquote(answer.headers["content-disposition"]).startswith(f"attachment; filename*=UTF-8''{name}-")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/queues/wrok", 404, "Did you mean"),
        ("/queues/work/messages?state=gone", 400, "is not a state"),
        ("/queues/work/messages?state=blocked", 400, "is not a state"),
        ("/queues/work/messages?from=x", 400, "whole number"),
        ("/queues/work?window=7", 400, "no window"),
        ("/queues/work?window=" + "9" * 50, 400, "whole number"),
        ("/queues/%3Cb%3E%0A", 400, "cannot name a queue"),
        ("/nothing", 404, "no such page"),
        ("/queues/work/messages/x", 404, "no such page"),
        ("/static/../app.py", 404, ""),
        ("/static/%2e%2e/app.py", 404, ""),
    ],
)
def test_a_wrong_address_is_told_in_words(client: Client, queues: Database, path: str, status: int, words: str) -> None:
    queues.create_queue("work")
    answer = client.get(path)
    assert answer.status == status
    assert words in answer.text


def test_a_database_that_is_gone_is_told_in_words(queues: Database, client: Client) -> None:
    queues.create_queue("work")
    queue = queues.queue("work")
    queue.drop()
    assert client.get("/queues/work").status == 404
    assert "There are no queues yet" in client.get("/").text


@pytest.mark.parametrize("what", ["payload", "error", "group", "key", "producer"])
def test_hostile_words_are_shown_and_nothing_else(client: Client, queues: Database, what: str) -> None:
    queue = queues.create_queue("work", groups=True, max_attempts=1)
    for number_, words in enumerate(HOSTILE):
        short = words[:250]
        if what == "producer":
            context_of(queue).who = short
        options: dict[str, Any] = {name: short if name == what else f"{name}-{number_}" for name in ("group", "key")}
        queue.push(words if what == "payload" else number_, headers={words[:20]: words}, **options)
        claimed(queue).fail(words if what == "error" else "no")
    pages = ["/queues/work/messages?state=dead", *(f"/queues/work/messages/{id + 1}" for id in range(len(HOSTILE)))]
    for path in [*pages, "/queues/work", "/"]:
        text = client.get(path).text
        for harm in ("<script>document", "<img src=x", "<h1>out", "<svg onload", "\u202e", "\x1b"):
            assert harm not in text, path


def test_numbers_are_readable() -> None:
    assert [duration(value) for value in (None, 0, 0.00001, 0.35, 0.9999, 3, 119, 150, 7300, 1e6)] == [
        "\u2013", "0 s", "< 1 ms", "350 ms", "1 s", "3 s", "119 s", "2.5 min", "2.03 h", "11.6 d",
    ]  # fmt: skip
    assert duration(timedelta(seconds=1.5)) == "1.5 s"
    assert [rate(value) for value in (None, 0, 0.01, 2.34, 1234.5)] == [
        "\u2013",
        "0",
        "0.6/min",
        "2.3/s",
        "1,234/s",
    ]
    assert number(1234567) == "1,234,567"


def test_dead_letters_of_another_page_are_not_lost(client: Client, queues: Database) -> None:
    ids = bury(queues.create_queue("work", max_attempts=1), list(range(150)))
    text = client.get(f"/queues/work/messages?state=dead&from={ids[99]}").text
    assert text.count('type="checkbox" name="id"') == 50


def test_the_time_of_a_plot_is_the_databases(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work")
    queue.push("x", now=at(0))
    assert "0 messages pushed, 0 finished and 0 attempts failed in 300 seconds" in client.get("/queues/work").text
    queue.push("y")
    hour = client.get("/queues/work?window=3600").text
    assert "1 messages pushed, 0 finished and 0 attempts failed in 3600 seconds" in hour


def test_estimates_look_like_estimates(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = db.create_queue("work")
    queue.push_many(range(12))
    queue.complete_many(queue.pop_many(11))
    finished = "/queues/work/messages?state=finished"
    with serving(db) as client:
        for path in ("/", "/queues/work", finished):
            assert "~" not in client.get(path).text.partition("On the disk")[0]
        monkeypatch.setattr(numbers, "COUNTED", 11)
        monkeypatch.setattr(numbers, "MOST", 10)
        assert "<b>~11</b>finished" in client.get("/queues/work").text
        assert '<span class="count">~11</span>' in client.get(finished).text
        for path in ("/", "/queues/work"):
            text = client.get(path).text
            assert re.search(r"finished.*~[\d.,]+/(s|min)", text)
            assert "~ of a time with more than" in text
        for path in ("/queues/work", finished):
            assert "~ of finished messages: an estimate" in client.get(path).text


def test_one_search_runs_at_a_time(client: Client, queues: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    queues.create_queue("work").push("a letter")
    monkeypatch.setattr(search, "WAIT", 0.0)
    with search._searching:
        answer = client.get("/queues/work/messages?q=letter")
        assert answer.status == 503
        assert "search again" in answer.text
        assert "a letter" in client.get("/queues/work/messages").text, "a list is no search"
    assert "a letter" in client.get("/queues/work/messages?q=letter").text


def test_a_search_finds_what_the_start_of_a_payload_has(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work")
    queue.push({"name": "Gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n", "text": "x" * 100_000})
    assert "1 messages searched, 1 found" in client.get("/queues/work/messages?q=gr%C3%BCN").text
