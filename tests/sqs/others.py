"""Run the tests that moto and kombu have for SQS against an endpoint.

    python -m tests.sqs.others moto|kombu [--kind sqlite|postgresql|mariadb] [--url …] [-- arguments of pytest]

Their source distributions are fetched from PyPI into a folder of the machine's cache, with an environment of their own.
Nothing of them is a part of this project. The database is that of `--url`, or a private one of the kind. What fails for
reasons of theirs is in EXCUSED.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import others
from tests.mariadb import programs as mariadb_programs
from tests.servers import mariadb_server, postgresql_bin, private_postgresql

PACKAGES = {"moto": "moto[server]==5.2.5", "kombu": "kombu[sqs]==5.7.0"}
NEEDED = ("pytest", "pytest-timeout", "pytest-rerunfailures", "freezegun", "requests")
SUITES = {
    "moto": (
        "tests/test_sqs/test_sqs.py",
        "tests/test_sqs/test_server.py",
        "tests/test_sqs/test_sqs_message_attributes.py",
    ),
    "kombu": ["t/integration/test_sqs.py"],
}
PORTS = {"moto": 5000, "kombu": 4100}
ACCOUNTS = {"moto": "123456789012", "kombu": "000000000000"}
EXCUSED = {
    "moto": {
        "test_change_message_visibility_on_unknown_receipt_handle": "not the words of AWS",
        "test_delete_message_errors": "not the words of AWS",
        "test_create_queue_with_different_attributes_fail": "AWS refuses FifoQueue=tru",
        "test_create_fifo_queue_with_dlq": "AWS refuses FifoQueue=false",
        "test_message_delay_is_more_than_15_minutes": "AWS refuses a deduplication id on a standard queue",
        "test_sqs_list_identities": "AWS refuses the name x.fifo for a standard queue",
        "test_message_with_attributes_invalid_datatype": "the words of AWS before 2023",
        "test_send_messages_to_fifo_without_message_group_id": "AWS answers a batch with InvalidParameterValue",
        "test_permissions": "AWS makes policies of the version 2008-10-17",
        "test_remove_permission_errors": "not the words of AWS",
    },
    "kombu": {
        "test_fanout": "needs SNS",
        "test_ack_invalid_receipt_with_backoff": "expects an error of GoAws; AWS deletes twice without one",
    },
}
# What moto's tests need to run against a server that is not moto's.
PLUGIN = """
import os
import boto3, moto.server, pytest, requests

ENDPOINT = os.environ["TEST_SERVER_MODE_ENDPOINT"]
REGIONS = ("us-east-1", "us-west-1", "us-west-2", "eu-west-1", "eu-west-3")
real = boto3.client

class Client:
    def __getattr__(self, method):
        def call(path="/", headers=None, data=None):
            response = requests.request(method, ENDPOINT + path, headers=headers, data=data)
            response.data = response.content
            return response
        return call

class Backend:
    def test_client(self):
        return Client()

moto.server.create_backend_app = lambda service: Backend()

@pytest.fixture
def account_id():
    return "123456789012"

@pytest.fixture(autouse=True)
def empty():
    for region in REGIONS:
        client = real("sqs", endpoint_url=ENDPOINT, region_name=region)
        while urls := client.list_queues().get("QueueUrls"):
            for url in urls:
                client.delete_queue(QueueUrl=url)
"""


@contextmanager
def sqlite() -> Iterator[str]:
    with TemporaryDirectory() as place:
        yield f"sqlite:///{place}/work.db"


@contextmanager
def postgresql() -> Iterator[str]:
    programs = postgresql_bin()
    assert programs is not None, "PostgreSQL is not installed."
    with private_postgresql(programs) as url:
        yield url


@contextmanager
def mariadb() -> Iterator[str]:
    programs = mariadb_programs()
    assert programs is not None, "MariaDB is not installed."
    with mariadb_server(*programs) as server:
        yield server.url


DATABASES = {each.__name__: each for each in (sqlite, postgresql, mariadb)}


def prepared(name: str) -> tuple[Path, Path]:
    """Return the folder with the sources, and a Python that has the package."""
    folder, python = others.prepared("tablequeue-sqs-tests", name, PACKAGES[name], NEEDED)
    plugin = folder / "on_tablequeue.py"
    if name == "moto" and not plugin.exists():
        # Its own fixture asks another service for the account.
        conftest = folder / "tests" / "conftest.py"
        text = conftest.read_text()
        start, end = text.index("@pytest.fixture(scope="), text.index("@pytest.fixture\n")
        conftest.write_text(text[:start] + text[end:])
        plugin.write_text(PLUGIN)
    return folder, python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PACKAGES)
    parser.add_argument("--kind", choices=DATABASES, default="sqlite")
    parser.add_argument("--url")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    name: str = options.name
    folder, python = prepared(name)
    with nullcontext(options.url) if options.url else DATABASES[options.kind]() as url:
        command = [sys.executable, "-m", "tablequeue", "--url", url, "sqs", "--port", str(PORTS[name]), "--json"]
        server = subprocess.Popen([*command, "--account", ACCOUNTS[name]], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["url"].replace("127.0.0.1", "localhost")
            given = {
                **{f"AWS_{key}": "any" for key in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")},
                "AWS_DEFAULT_REGION": "us-east-1",
                "SQS_PORT": str(PORTS[name]),
                "TEST_SERVER_MODE": "true",
                "TEST_SERVER_MODE_ENDPOINT": address,
                "MOTO_CALL_RESET_API": "false",
                "PYTHONPATH": str(folder),
            }
            left = " and ".join(f"not {test}" for test in EXCUSED[name])
            plugin = ["-p", "on_tablequeue"] if name == "moto" else []
            pytest = [str(python), "-m", "pytest", "-q", "-W", "ignore", *plugin, "-k", left, *SUITES[name]]
            return subprocess.run([*pytest, *options.arguments], cwd=folder, env=os.environ | given).returncode
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
