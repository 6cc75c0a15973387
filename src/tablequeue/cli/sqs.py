"""`tablequeue sqs`: an endpoint for Amazon SQS."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import click

from tablequeue.cli.commands import Command, Settings, needed_packages
from tablequeue.cli.long_running import configure_logs
from tablequeue.cli.output import print_json
from tablequeue.cli.serve import listening
from tablequeue.database import Database
from tablequeue.errors import BadInput, Unreachable
from tablequeue.http.hosts import is_loopback

# Seconds for which the endpoint waits for its database at the start.
PATIENCE = 60
SECRET = "TABLEQUEUE_SQS_SECRET_KEY"
FILE = click.Path(exists=True, dir_okay=False)


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9324, show_default=True, help="Its port; 0: a free one.")
@click.option("--region", default="us-east-1", show_default=True, help="The region of requests that are not signed.")
@click.option("--account", default="0" * 12, show_default=True, help="The account in URLs and ARNs.")
@click.option("--access-key", help="The access key that requests must be signed with.")
@click.option("--secret-key", envvar=SECRET, show_envvar=True, help="Its secret key.")
@click.option("--credentials", type=FILE, help="A JSON file with secret keys by access key.")
@click.option("--certificate", type=FILE, help="A TLS certificate, for https.")
@click.option("--private-key", type=FILE, help="Its private key.")
@click.option("--allow-any-key", is_flag=True, help="Check no keys on an address of a private network.")
@click.option("--queues", type=FILE, help="A TOML file with queues to make at the start, if they do not exist.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Processes on one socket.")
@click.option(
    "--connections",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Connections of a process to the database, at most.",
)
@click.option(
    "--strict", is_flag=True, help="Refuse to make a queue in the 60 seconds after its deletion here, as AWS does."
)
@click.pass_obj
def sqs(
    settings: Settings,
    host: str,
    port: int,
    region: str,
    account: str,
    access_key: str | None,
    secret_key: str | None,
    credentials: str | None,
    certificate: str | None,
    private_key: str | None,
    allow_any_key: bool,
    queues: str | None,
    processes: int,
    connections: int,
    strict: bool,
) -> None:
    """Serve the queues of the database as Amazon SQS: point --endpoint-url of any SDK here.

    On 127.0.0.1 any credentials will do. On any other address requests must be signed with the keys given here, unless
    --allow-any-key says that everybody who reaches it may use the queues.
    """
    with needed_packages("The SQS endpoint", "sqs"):
        from tablequeue.sqs import app
        from tablequeue.sqs.declared import declared, make
        from tablequeue.sqs.processes import forked
        from tablequeue.sqs.server import server
    keys = _keys(access_key, secret_key, credentials)
    if keys is None and not is_loopback(host) and not allow_any_key:
        raise BadInput(
            "Without keys everybody could use the queues.",
            f"Give --access-key and {SECRET}, or --credentials; or serve on 127.0.0.1. In a private network, where "
            "everybody may use them: --allow-any-key.",
        )
    if keys is not None and allow_any_key:
        raise BadInput("Keys are given, and any key is allowed.", "Leave one of them out.")
    wanted = {} if queues is None else declared(Path(queues))
    if bool(certificate) is not bool(private_key):
        raise BadInput("A certificate and its private key go together.", "Give both --certificate and --private-key.")
    with ExitStack() as opened:
        listener = opened.enter_context(listening("The endpoint", host, port))
        first = processes == 1 or forked(processes) == 0
        database = _when_it_answers(settings, opened)
        served = app(
            database,
            credentials=keys,
            account=account,
            region=region,
            any_key=allow_any_key,
            strict=strict,
            connections=connections,
        )
        asyncio.run(make(served.endpoint, wanted))
        options: dict[str, Any] = {"ssl_certfile": certificate, "ssl_keyfile": private_key} if certificate else {}
        shown_host = f"[{host}]" if ":" in host else host
        url = f"{'https' if certificate else 'http'}://{shown_host}:{listener.getsockname()[1]}"
        if allow_any_key and first:
            click.echo("No keys are checked: everybody who reaches this address may use all queues.", err=True)
        if settings.json and first:
            print_json({"url": url})
        elif first:
            click.echo(f"SQS at {url}, region {region}")
        configure_logs(as_json=settings.json)
        try:
            server(served, **options).run(sockets=[listener])
        except KeyboardInterrupt:
            return  # Ctrl-C is the normal end, not a failure


def _when_it_answers(settings: Settings, opened: ExitStack) -> Database:
    """Open the database; wait for up to a minute until it answers. Both may have been started at the same time."""
    end, said = monotonic() + PATIENCE, ""
    while True:
        try:
            return opened.enter_context(settings.database())
        except Unreachable as error:
            if monotonic() > end:
                raise
            if error.cause != said:
                click.echo(f"{error.cause} The endpoint tries again for up to {PATIENCE} seconds.", err=True)
            said = error.cause
        sleep(1)


def _keys(access_key: str | None, secret_key: str | None, credentials: str | None) -> dict[str, str] | None:
    """Return the secret keys by access key; None if none are given."""
    keys: dict[str, str] = {}
    if credentials is not None:
        try:
            given = json.loads(Path(credentials).read_text("utf-8"))
        except (OSError, ValueError):
            given = None
        if not isinstance(given, dict) or not given or not all(isinstance(value, str) for value in given.values()):
            raise BadInput("The credentials file cannot be used.", 'Write it as {"access key": "secret key"}.')
        keys |= given
    if bool(access_key) is not bool(secret_key) and (access_key or os.environ.get(SECRET) is None):
        raise BadInput("An access key and its secret key go together.", f"Give --access-key, and {SECRET}.")
    if access_key and secret_key:
        keys[access_key] = secret_key
    return keys or None
