"""`tablequeue serve`: the dashboard and the metrics."""

from __future__ import annotations

import os
import secrets
import socket

import click
import sqlalchemy as sa

from tablequeue.cli.commands import Command, Settings, needed_packages
from tablequeue.cli.long_running import configure_logs
from tablequeue.cli.output import print_json
from tablequeue.database import Database
from tablequeue.errors import BadInput
from tablequeue.http.hosts import is_loopback

TOKEN = "TABLEQUEUE_SERVE_TOKEN"


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Its port; 0: a free one.")
@click.option("--public-url", metavar="URL", help="Its URL behind a proxy, for browsers: https://queues.example.org")
@click.option("--user-header", metavar="NAME", help="The header in which the proxy names the visitor: X-Forwarded-User")
@click.option("--allow-actions", is_flag=True, help="Allow visitors to redrive and purge dead letters.")
@click.pass_obj
def serve(
    settings: Settings, host: str, port: int, public_url: str | None, user_header: str | None, allow_actions: bool
) -> None:
    """Serve a dashboard of the queues: messages, dead letters, producers and consumers, and /metrics for Prometheus.

    The dashboard is read-only without --allow-actions. On 127.0.0.1 everybody on this machine can see it. On any other
    address a visitor needs a token, in a form or as "Authorization: Bearer": the token in TABLEQUEUE_SERVE_TOKEN, or
    one that is printed at the start. For a name and TLS, put a proxy in front of 127.0.0.1 and give its --public-url,
    which needs a token too.
    """
    with needed_packages("The dashboard", "serve"):
        from tablequeue.http.server import server
        from tablequeue.web import dashboard
    given = os.environ.get(TOKEN) or None
    loopback = is_loopback(host)
    token = given or (None if loopback and public_url is None else secrets.token_urlsafe(24))
    with settings.database() as database, listening("The dashboard", host, port) as listener:
        app = dashboard(
            database,
            name=_name(database),
            token=token,
            loopback=loopback,
            public_url=public_url,
            allow_actions=allow_actions,
            user_header=user_header,
        )
        url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
        if settings.json:
            print_json({"url": url, "token": None if given else token})
        else:
            click.echo(f"{_name(database)} at {public_url or url}" + ("" if allow_actions else ", read-only"))
            if token and not given:
                click.echo(f"token: {token}")
        configure_logs(as_json=settings.json)
        try:
            server(app).run(sockets=[listener])
        except KeyboardInterrupt:
            return  # Ctrl-C is the normal end, not a failure


def _name(database: Database) -> str:
    """Return the URL of the database without user, password and options."""
    url = database.engine.url
    return sa.URL.create(url.get_backend_name(), None, None, url.host, url.port, url.database).render_as_string()


def listening(what: str, host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
        # Connections inherit it. Without it the body of a response, which follows its head, waits 40 ms for the
        # client's acknowledgement: asyncio sets it only for sockets that were made for TCP by name.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise BadInput(
            f"{what} cannot listen on {host}, port {port}: {error.strerror or error}.",
            "Give another --host or --port; 0 finds a free port.",
        ) from None
