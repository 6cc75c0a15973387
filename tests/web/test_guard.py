"""Access to pages and actions, and the security headers of every response."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tablequeue import Database
from tablequeue.errors import BadInput
from tablequeue.http import server as http_server
from tablequeue.web import dashboard, guard
from tests.support import claimed, refuses
from tests.web.support import TOKEN, Client, bury, serving


@pytest.fixture
def locked(queues: Database) -> Iterator[Client]:
    """A client of a dashboard with a token, which can be reached by any host name."""
    queues.create_queue("work", max_attempts=1)
    with serving(queues, token=TOKEN, loopback=False, allow_actions=True) as client:
        yield client


PAGES = ("/", "/queues/work", "/queues/work/messages", "/metrics", "/queues/work/messages/1/payload", "/nothing")


# -- the Host header ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[", "0"])
def test_a_name_that_points_here_from_elsewhere_is_refused(client: Client, host: str) -> None:
    for path in ("/", "/login", "/static/style.css", "/metrics", "/healthz"):
        assert client.get(path, host=host).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]:8080"])
def test_the_names_of_this_machine_are_served(client: Client, host: str) -> None:
    assert client.get("/", host=host).status == 200


# -- the token ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_shown_without_the_token(locked: Client, path: str) -> None:
    answer = locked.get(path)
    assert answer.status == 303
    assert answer.headers["location"].startswith("/login?next=/")
    assert answer.text == ""
    assert locked.get(path, accept="text/plain").status == 401
    assert locked.get(path, cookie="tablequeue=x").status == 303
    assert locked.get(path, authorization="Bearer x").status == 303


def test_the_token_opens_the_pages(locked: Client) -> None:
    assert locked.log_in("another token, a wrong one").status == 403
    assert locked.get("/").status == 303
    answer = locked.log_in()
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in answer.headers["set-cookie"]
    assert locked.get("/").status == 200
    assert locked.post("/logout", {"csrf": locked.csrf("/")}).status == 303


def test_a_logout_ends_the_session(locked: Client) -> None:
    locked.log_in()
    other = Client(locked.port)
    other.log_in()
    assert locked.headers != other.headers
    assert locked.post("/logout", {"csrf": "x"}).status == 403
    assert locked.get("/").status == 200
    locked.post("/logout", {"csrf": locked.csrf("/")})
    assert locked.get("/").status == 303, "whoever still has the cookie"
    assert other.get("/").status == 200


def test_the_oldest_of_too_many_sessions_ends(locked: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_SESSIONS", 2)
    clients = [Client(locked.port) for _ in range(3)]
    for client in clients:
        client.log_in()
    assert [client.get("/").status for client in clients] == [303, 200, 200]


# -- a proxy -----------------------------------------------------------------------------------------------------------

PUBLIC = "https://queues.example.org"


@pytest.mark.parametrize("host", ["queues.example.org", "queues.example.org:443", "127.0.0.1:8080"])
def test_a_proxy_may_keep_the_host_or_not(queues: Database, host: str) -> None:
    with serving(queues, token=TOKEN, public_url=f"{PUBLIC}:443/", allow_actions=True) as client:
        assert client.get("/login", host=host).status == 200
        assert client.get("/login", host="queues.example.org.evil.example").status == 421
        form = {"csrf": client.csrf(), "token": TOKEN}
        for origin in ("https://evil.example", "http://queues.example.org:81", "null"):
            assert client.post("/login", form, host=host, origin=origin).status == 403
        answer = client.post("/login", form, host=host, origin=PUBLIC)
        assert answer.status == 303
        assert "; secure" in (answer.headers["set-cookie"] or "").lower()


@pytest.mark.parametrize(
    "url", ["", "queues.example.org", "https://", "https://x/y", "https://a@x", "ftp://x", "https://x?y"]
)
def test_a_public_url_that_cannot_be(queues: Database, url: str) -> None:
    refuses(BadInput, dashboard, queues, name="x", token=TOKEN, public_url=url)


def test_a_public_url_needs_a_token(queues: Database) -> None:
    refuses(BadInput, dashboard, queues, name="x", public_url=PUBLIC)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_elsewhere_starts_no_search(client: Client, queues: Database, site: str) -> None:
    queues.create_queue("work")
    path = "/queues/work/messages?q=x"
    for method in ("GET", "HEAD"):
        for dest in ("image", "empty", "iframe"):
            assert client._ask(method, path, None, {"sec-fetch-site": site, "sec-fetch-dest": dest}).status == 403
    link = {"sec-fetch-site": site, "sec-fetch-dest": "document"}
    assert client._ask("GET", path, None, link).status == 200, "a link leads here"
    assert client._ask("GET", path, None, {"sec-fetch-site": "same-origin", "sec-fetch-dest": "empty"}).status == 200


def test_a_scraper_gives_the_token_in_a_header(locked: Client) -> None:
    assert locked.get("/metrics", authorization=f"Bearer {TOKEN}").status == 200
    assert locked.get("/metrics", authorization=f"Basic {TOKEN}").status == 303


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("/queues/work?window=3600", "/queues/work?window=3600"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("", "/"),
    ],
)
def test_the_login_leads_to_pages_of_ours_only(locked: Client, given: str, taken: str) -> None:
    form = {"csrf": locked.csrf(), "token": TOKEN, "next": given}
    assert locked.post("/login", form).headers["location"] == taken


def test_a_cookie_of_another_run_is_worth_nothing(queues: Database) -> None:
    with serving(queues, token=TOKEN) as before:
        before.log_in()
    with serving(queues, token=TOKEN) as client:
        assert client.get("/", **before.headers).status == 303


def test_a_token_that_cannot_be(queues: Database) -> None:
    refuses(BadInput, dashboard, queues, name="x", token="short")
    refuses(BadInput, dashboard, queues, name="x", loopback=False)


# -- actions -----------------------------------------------------------------------------------------------------------


def test_what_is_read_only_changes_nothing(queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, ["a"])
    with serving(queues) as client:
        text = client.get("/queues/work/messages?state=dead").text
        assert 'method="post"' not in text
        answer = client.post("/queues/work/dead", {"csrf": client.csrf(), "verb": "redrive", "all": "all"})
        assert answer.status == 403
        assert "--allow-actions" in answer.text
    assert queue.stats().dead == 1


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        ({}, {}),
        ({"csrf": ""}, {}),
        ({"csrf": "x" * 43}, {}),
        ({"csrf": "ours"}, {"origin": "https://evil.example"}),
        ({"csrf": "ours"}, {"origin": "null"}),
    ],
)
def test_a_form_from_elsewhere_is_refused(
    client: Client, queues: Database, form: dict[str, str], headers: dict[str, str]
) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, ["a"])
    if form.get("csrf") == "ours":
        form = form | {"csrf": client.csrf()}
    assert client.post("/queues/work/dead", {"verb": "redrive", "all": "all", **form}, **headers).status == 403
    assert client.post("/login", {"token": "x", **form}, **headers).status == 403
    assert queue.stats().dead == 1


@pytest.mark.parametrize("length", ["65537", "9" * 30, "x", "-1"])
def test_a_form_that_is_too_large_is_not_read(client: Client, length: str) -> None:
    assert client._ask("POST", "/login", None, {"content-length": length}).status in (400, 413)


def test_a_form_that_does_not_come_is_not_waited_for(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "BODY_WITHIN", 0.0)
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        head = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\ncsrf=".encode())
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert client.get("/").status == 200
    assert caplog.records == []


def test_messages_are_cancelled(client: Client, queues: Database) -> None:
    queue = queues.create_queue("letters")
    first, second = queue.push("a"), queue.push("b")
    message = claimed(queue)
    form = {"csrf": client.csrf(f"/queues/letters/messages/{second}")}
    assert "Yes, cancel it" in client.get(f"/queues/letters/messages/{second}").text
    assert client.post(f"/queues/letters/messages/{second}/cancel", form).headers["location"].endswith("&cancelled=1")
    assert "Yes, tell its consumer to stop" in client.get(f"/queues/letters/messages/{first}").text
    answer = client.post(f"/queues/letters/messages/{first}/cancel", form)
    assert "1 told to stop" in client.get(answer.headers["location"]).text
    assert message.cancelled
    gone = client.get(f"/queues/letters/messages/{second}").text
    assert "cancelled" in gone
    assert "Yes, cancel it" not in gone
    assert client.post(f"/queues/letters/messages/{second}/cancel", form).status == 400
    assert client.post(f"/queues/letters/messages/{first}/cancel", {}).status == 403


def test_batches_are_cancelled(client: Client, queues: Database) -> None:
    queue, other = (queues.create_queue(name, batches=True) for name in ("letters", "other"))
    with queue.batch() as batch:
        batch.push_many([*"ab"])
    path = f"/queues/letters/batches/{batch.id}/cancel"
    form = {"csrf": client.csrf("/queues/letters")}
    assert client.post(path, {}).status == 403
    assert client.post(path, form, origin="https://evil.example").status == 403
    assert client.post(path.replace("letters", "other"), form).status == 400
    assert client.post(path.replace(f"/{batch.id}/", "/99/"), form).status == 404
    with serving(queues) as readers:
        assert "Cancel" not in readers.get("/queues/letters").text
        assert readers.post(path, {"csrf": readers.csrf()}).status == 403
    assert (queue.stats().open_batches, other.stats().open_batches) == (1, 0)
    assert client.post(path, form).headers["location"] == "/queues/letters?batch=2"
    assert queue.stats().open_batches == 0


def test_a_queue_is_paused_and_resumed(client: Client, queues: Database) -> None:
    queue = queues.create_queue("letters")
    queue.push("a")
    form = {"csrf": client.csrf("/queues/letters")}
    assert client.post("/queues/letters/pause", form | {"verb": "pause"}).headers["location"] == "/queues/letters"
    assert queue.pop() is None
    for path in ("/queues/letters", "/queues/letters/messages", "/"):
        assert '<p class="notice paused" role="status"><b>letters is paused.</b>' in client.get(path).text
    assert "Resume" in client.get("/queues/letters").text
    assert client.post("/queues/letters/pause", form | {"verb": "drop"}).status == 400
    assert client.post("/queues/letters/pause", {"verb": "resume"}).status == 403
    client.post("/queues/letters/pause", form | {"verb": "resume"})
    assert queue.pop() is not None


def test_a_message_is_rescheduled(client: Client, queues: Database) -> None:
    queue = queues.create_queue("letters", order="priority")
    id = queue.push("a", delay=1000)
    path = f"/queues/letters/messages/{id}"
    form = {"csrf": client.csrf(path)}
    answer = client.post(f"{path}/reschedule", form | {"delay": "0", "priority": "7"})
    assert "1 rescheduled" in client.get(answer.headers["location"]).text
    for wrong in ({}, {"delay": "soon"}, {"delay": "-1"}, {"delay": "nan"}, {"priority": "0.5"}):
        assert client.post(f"{path}/reschedule", form | wrong).status == 400
    assert client.post(f"{path}/reschedule", {"delay": "60"}).status == 403
    assert claimed(queue).priority == 7
    assert client.post(f"{path}/reschedule", form | {"delay": "60"}).status == 400
    with serving(queues) as readers:
        assert "Pause" not in readers.get("/queues/letters").text
        assert readers.post("/queues/letters/pause", {"csrf": readers.csrf(), "verb": "pause"}).status == 403
        assert readers.post(f"{path}/reschedule", {"csrf": readers.csrf(), "delay": "0"}).status == 403


def test_dead_letters_are_redriven_and_purged(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    a, b, *_ = bury(queue, list("abcd"))
    csrf = client.csrf()
    answer = client.post("/queues/work/dead", {"csrf": csrf, "verb": "redrive", "id": [a, b]})
    assert (answer.status, answer.headers["location"]) == (303, "/queues/work/messages?state=dead&redriven=2")
    assert "2 redriven." in client.get(answer.headers["location"]).text
    assert (queue.stats().ready, queue.stats().dead) == (2, 2)
    assert (
        "purged=2"
        in client.post("/queues/work/dead", {"csrf": csrf, "verb": "purge", "all": "all"}).headers["location"]
    )
    assert (queue.stats().ready, queue.stats().dead) == (2, 0)


def test_all_are_more_than_those_that_are_ticked(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    a, *_ = bury(queue, list("abc"))
    form = {"csrf": client.csrf(), "verb": "redrive", "all": "all", "id": [a]}
    assert "redriven=3" in client.post("/queues/work/dead", form).headers["location"]
    assert queue.stats().dead == 0


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_all_that_a_search_finds(client: Client, queues: Database, verb: str) -> None:
    """Those of every page, and no others; the page says their number before, and comes again afterwards."""
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, [f"{'to' if n % 2 else 'TO'} {'ada & co' if n % 3 else 'eve'}" for n in range(450)])
    path = "/queues/work/messages?state=dead&q=to+ada+%26"
    text = client.get(path).text
    assert "all 300 found instead" in text
    further = "/queues/work/messages?" + re.findall(r'href="[^"?]*\?([^"]*from=[^"]*)"', text)[0].replace("&amp;", "&")
    assert "all 300 found instead" in client.get(further).text
    form = {"csrf": client.csrf(), "verb": verb, "q": "to ada &"}
    location = client.post("/queues/work/dead", {**form, "id": [2, 3]}).headers["location"]
    assert location == f"{path}&{verb}{'n' if verb == 'redrive' else 'd'}=2"
    assert "all 298 found instead" in client.get(location).text
    assert location.replace("=2", "=298") == client.post("/queues/work/dead", form | {"all": "all"}).headers["location"]
    assert {message.payload.rpartition(" ")[2] for message in queue.dead(500)} == {"eve"}
    assert (queue.stats().dead, queue.stats().ready) == (150, 300 if verb == "redrive" else 0)


def test_a_search_is_kept_on_the_way_to_a_message_and_back(client: Client, queues: Database) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    (dead,) = bury(queue, ["a b"])
    waiting, later = queue.push("a b"), queue.push("a b", delay=900)
    for id, state, verb, form in (
        (dead, "dead", "dead", {"verb": "redrive", "id": dead}),
        (waiting, "ready", "cancel", {}),
        (later, "scheduled", "reschedule", {"delay": 5}),
    ):
        listed, path = f"/queues/work/messages?state={state}&q=a+b", f"/queues/work/messages/{id}?q=a+b"
        assert f'href="{path}"' in client.get(listed).text
        text = client.get(path).text
        assert f'href="{listed.replace("&", "&amp;")}"' in text
        assert '<input type="hidden" name="q" value="a b">' in text
        action = "/queues/work/dead" if verb == "dead" else f"/queues/work/messages/{id}/{verb}"
        location = client.post(action, {"csrf": client.csrf(), "q": "a b", **form}).headers["location"]
        assert "q=a+b" in location
        assert client.get(location).status == 200


def test_the_log_names_the_queue_and_who_it_was(
    client: Client, queues: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tablequeue.serve")
    queue = queues.create_queue("work", max_attempts=1, batches=True)
    bury(queue, ["a", "b"])
    with queue.batch() as batch:
        batch.push("c")
    id = queue.push("d")
    for path, form, words in (
        ("/pause", {"verb": "pause"}, "queue paused"),
        ("/pause", {"verb": "resume"}, "queue resumed"),
        ("/dead", {"verb": "redrive", "id": 1}, "1 dead letters redriven"),
        ("/dead", {"verb": "purge", "all": "all"}, "1 dead letters purged"),
        (f"/batches/{batch.id}/cancel", {}, f"batch {batch.id} cancelled"),
        (f"/messages/{id}/reschedule", {"delay": 9}, f"message {id} rescheduled"),
        (f"/messages/{id}/cancel", {}, f"message {id} cancelled"),
    ):
        assert client.post(f"/queues/work{path}", {"csrf": client.csrf(), **form}).status == 303
        record = caplog.records[-1]
        assert record.getMessage() == f"work: {words}, from 127.0.0.1"
        assert (vars(record)["queue"], vars(record)["client"]) == ("work", "127.0.0.1")


def test_the_log_names_the_person_if_a_proxy_does(queues: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tablequeue.serve")
    queues.create_queue("work")
    name = "Zo\N{LATIN SMALL LETTER E WITH DIAERESIS} <b>\N{RIGHT-TO-LEFT OVERRIDE}"
    sent = {"X-Forwarded-User": name.encode().decode("latin-1")}
    for header in ("X-Forwarded-User", None):
        with serving(queues, allow_actions=True, user_header=header) as client:
            assert client.post("/queues/work/pause", {"csrf": client.csrf(), "verb": "pause"}, **sent).status == 303
            record = caplog.records[-1]
            by = ", by Zo\N{LATIN SMALL LETTER E WITH DIAERESIS} <b>" if header else ""
            assert record.getMessage() == f"work: queue paused{by}, from 127.0.0.1"
            assert (vars(record)["user"] or "") == by[5:]
            assert (f"<bdi>{by[5:].replace('<b>', '&lt;b&gt;')}</bdi>" in client.get("/", **sent).text) is bool(header)


def test_the_name_of_a_header_is_checked(queues: Database) -> None:
    with pytest.raises(BadInput, match="is not the name of a header"):
        dashboard(queues, name="x", user_header="X-User: ada")


@pytest.mark.parametrize(
    "form",
    [
        {"verb": "redrive"},
        {"verb": "redrive", "id": "x"},
        {"verb": "drop", "all": "all"},
        {"verb": "purge", "id": "9" * 30},
        {},
    ],
)
def test_an_action_names_what_it_is_for(client: Client, queues: Database, form: dict[str, Any]) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, ["a"])
    assert client.post("/queues/work/dead", {"csrf": client.csrf(), **form}).status == 400
    assert queue.stats().dead == 1


# -- every response ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, "/login", "/static/style.css", "/static/nothing"])
def test_every_answer_forbids_what_is_not_ours(client: Client, queues: Database, path: str) -> None:
    queues.create_queue("work").push("x")
    answer = client.get(path)
    policy = answer.headers["content-security-policy"] or ""
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "*" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["server"] is None or "uvicorn" in answer.headers["server"]
    for inline in ("<style", " style=", "<script>", " onclick", "http://", "https://"):
        assert inline not in answer.text.replace("http://www.w3.org", ""), inline


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "POST"])
def test_other_methods_do_nothing(client: Client, queues: Database, method: str) -> None:
    queues.create_queue("work").push("x")
    assert client._ask(method, "/queues/work", None, {}).status == 405
