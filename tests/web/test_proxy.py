"""The dashboard behind nginx, with TLS and the configuration of deploy/, in a real Chromium."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from tablequeue import Database
from tests.web.conftest import chromium
from tests.web.support import TOKEN, bury, serving

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "deploy" / "nginx" / "tablequeue.conf"
NAME = "queues.example.org"
PUBLIC = f"https://{NAME}"
WHOLE = """daemon off; pid {folder}/pid; error_log stderr; events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {server}
}}
"""


@contextmanager
def proxy(folder: Path, target: int, *, keeps_host: bool) -> Iterator[int]:
    """Run nginx with the configuration, and a certificate of its own, before a port; yield the port of the proxy."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("nginx is not installed.")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    names = ("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-days", "1")
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *names)
    subprocess.run(words, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    server = re.sub(r"listen \[::\].*", "", CONFIGURATION.read_text())
    server = server.replace("listen 443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:8080", f"127.0.0.1:{target}")
    server = server.replace(f"/etc/ssl/{NAME}.pem", str(certificate)).replace(f"/etc/ssl/{NAME}.key", str(key))
    if not keeps_host:
        server = server.replace("proxy_set_header Host $host;", "")
    (folder / "nginx.conf").write_text(WHOLE.format(folder=folder, server=server))
    process = subprocess.Popen([program, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None, process.stderr.read()
        try:
            yield port
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_the_page_shows_the_configuration() -> None:
    (shown,) = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.DOTALL)
    assert CONFIGURATION.read_text().partition("server {")[2] == shown.partition("server {")[2]


@pytest.mark.parametrize("keeps_host", [True, False])
def test_a_proxy_with_tls_before_the_dashboard(queues: Database, tmp_path: Path, keeps_host: bool) -> None:
    queue = queues.create_queue("work", max_attempts=1)
    bury(queue, ["a", "b"])
    options = {"token": TOKEN, "public_url": PUBLIC, "allow_actions": True}
    with serving(queues, **options) as client, proxy(tmp_path, client.port, keeps_host=keeps_host) as port:
        rules = f"--host-resolver-rules=MAP {NAME}:443 127.0.0.1:{port}"
        with sync_playwright() as playwright, chromium(playwright, rules) as browser:
            context = browser.new_context(base_url=PUBLIC, ignore_https_errors=True)
            page = context.new_page()
            page.goto("/queues/work/messages?state=dead")
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Log in").click()
            expect(page).to_have_url(f"{PUBLIC}/queues/work/messages?state=dead")
            page.get_by_label("Message 1").check()
            page.get_by_role("button", name="Redrive selected").click()
            expect(page.get_by_text("1 redriven.")).to_be_visible()
            (cookie,) = context.cookies()
            assert cookie["secure"]
            assert cookie["httpOnly"]
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_label("Token")).to_be_visible()
            context.add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": PUBLIC}])
            page.goto("/")
            expect(page.get_by_label("Token")).to_be_visible()
            context.close()
    assert (queue.stats().ready, queue.stats().dead) == (1, 1)
