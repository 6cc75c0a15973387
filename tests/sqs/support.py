"""An endpoint in this process, and clients of it in both protocols."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

from tablequeue.sqs import model
from tablequeue.sqs.app import SqsApp
from tablequeue.sqs.server import server as made

REGION = "us-east-1"
PROTOCOLS = ("json", "query")


@contextmanager
def serving(app: SqsApp, end: bool = False) -> Iterator[str]:
    """Serve an application in a thread; yield its URL. Wait for the end of the server only with `end`, because uvicorn
    pauses for 0.2 seconds there."""
    server = made(app, host="127.0.0.1", port=0)
    started = threading.Event()
    original = server.startup

    async def startup(sockets: Any = None) -> None:
        await original(sockets)
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(30)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        if end:
            thread.join()


def client(
    url: str,
    protocol: str = "json",
    *,
    key: str = "key",
    secret: str = "secret",
    region: str = REGION,
    attempts: int = 1,
) -> Any:
    """Return a boto3 client that speaks this protocol, and makes up to so many attempts for each call."""
    return _session(protocol).client(
        "sqs",
        region_name=region,
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}, max_pool_connections=50),
    )


@cache
def _session(protocol: str) -> boto3.Session:
    """Return a session; to read the files of botocore takes longer than most tests."""
    session = botocore.session.Session()
    if protocol == "query":
        session.register_component("data_loader", Loader(extra_search_paths=[_query_models()]))
    return boto3.Session(botocore_session=session)


@cache
def _query_models() -> str:
    """Return a folder with the service model as it was before 2023: the same shapes in the query protocol."""
    folder = Path(mkdtemp()) / "sqs" / "2012-11-05"
    folder.mkdir(parents=True)
    found = Loader().load_service_model("sqs", "service-2")
    values = json.loads(json.dumps(found))
    values["metadata"] |= {"protocol": "query", "protocols": ["query"]}
    for name in ("awsQueryCompatible", "jsonVersion", "targetPrefix"):
        values["metadata"].pop(name)
    values["metadata"]["xmlNamespace"] = "http://queue.amazonaws.com/doc/2012-11-05/"
    for operation in values["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{operation['name']}Result"
    for name, shape in values["shapes"].items():
        _name_parts(name, shape, values["shapes"])
    (folder / "service-2.json").write_text(json.dumps(values))
    return str(folder.parent.parent)


def _name_parts(name: str, shape: dict[str, Any], shapes: Mapping[str, Any]) -> None:
    service = model.service()
    if shape["type"] == "list":
        shape["member"]["locationName"] = model.entries(service.shape_for(name))
    if shape["type"] == "map":
        _, shape["key"]["locationName"], shape["value"]["locationName"] = model.pairs(service.shape_for(name))
    for member in shape.get("members", {}).values():
        if shapes[member["shape"]]["type"] == "map":
            member["locationName"] = model.pairs(service.shape_for(member["shape"]))[0]
        if shapes[member["shape"]]["type"] == "list":
            member["locationName"] = model.entries(service.shape_for(member["shape"]))
