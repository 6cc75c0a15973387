"""Engines whose verbs call the stored procedures, so that the conformance suite tests the procedures."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar, cast

from tablequeue import errors
from tablequeue.engines import procedures
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.messages import Messages
from tablequeue.engines.mssql.connection import Batch, dashed
from tablequeue.engines.mssql.steps import STEP, claimed_in_steps, steps_of_ids
from tablequeue.engines.operation import Effect, operation
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.model.definition import Definition
from tests.servers import KINDS, VariantKind
from tests.support import with_parts

# The files about verbs that have a procedure are marked `variants("procedures")`. In all but the one about the order
# these designs are enough: the procedures of the others differ only in the SQL of the claim.
DESIGNS = frozenset({"fifo", "groups"})
# The procedures and the verbs draw different tokens. This maps one to those of the calls that claimed the batch.
TOKENS: dict[str, list[str]] = {}

Params = dict[str, Any]  # those of the procedures have names of their own
Call = Callable[[Cursor, Table, str, Params], list[Row]]
F = TypeVar("F", bound=Callable[..., Any])


def on_postgresql(cursor: Cursor, table: Table, verb: str, params: Params) -> list[Row]:
    given = ", ".join(f"p_{name} => %({name})s" for name in params)
    if verb == "wait":
        cursor.execute(f"call {_queue(table)}_wait({given})", params)
        return []
    cursor.execute(f"select * from {_queue(table)}_{verb}({given})", params)  # noqa: S608 (checked names)
    rows: list[Row] = cursor.fetchall()
    return rows


def on_mariadb(cursor: Cursor, table: Table, verb: str, params: Params) -> list[Row]:
    """Parameters have no names, so the optional ones are one object of options."""
    first = REQUIRED.get(verb, ())
    options = {name: str(value) if name in ("due", "now") else value for name, value in params.items()}
    for name in ("headers", "result", "after", "then", "failed"):
        if params.get(name):
            options[name] = json.loads(params[name])
    given = {name: options[name] for name in {*params} - {*first} if params[name] is not None}
    marks = ", ".join(["%s"] * (len(first) + 1))
    values = [*(params.get(name) for name in first), json.dumps(given) if given else None]
    cursor.execute(f"call {_queue(table)}_{verb}({marks})", values)
    rows: list[Row] = list(cursor.fetchall())
    while cursor.nextset():  # errors may come after the rows
        pass
    return rows


def on_mssql(cursor: Cursor, table: Table, verb: str, params: Params, in_steps: bool = False) -> list[Row]:
    """In arrays, payloads and headers are strings with their text, and a call has at most 1,000 messages. So a caller
    with more makes several calls, `in_steps`."""
    given = dict(params)
    if given.get("token") is not None:
        given["token"] = dashed(str(given["token"]).replace("-", "").lower())  # an exec has no cast
    if verb in ("pop", "take") and isinstance(given.get("n"), int) and given["n"] > STEP:
        n = given["n"] if in_steps else STEP
        return claimed_in_steps(lambda wanted: _run(cursor, table, verb, given | {"n": wanted}), n)
    if verb in ("push_many", "push_each"):
        messages = _strings(given["messages"], table.definition.payload, verb == "push_each")
        steps = _steps(messages) if in_steps else [messages]
        return [row for step in steps for row in _run(cursor, table, verb, given | {"messages": step})]
    return _run(cursor, table, verb, given)


def _steps(messages: str) -> list[str]:
    """Split an array into some of 1,000 messages; leave what is no array, which the procedure refuses."""
    try:
        array = json.loads(messages)
        return [json.dumps(array[start : start + 1000]) for start in range(0, len(array), 1000)] or [messages]
    except (ValueError, TypeError):
        return [messages]


def _run(cursor: Cursor, table: Table, verb: str, given: Params) -> list[Row]:
    name = f"{_queue(table)}_{'read_history' if verb == 'history' else verb}"
    cursor.execute(Batch(f"exec {name} " + ", ".join(f"@p_{each} = :{each}" for each in given)), given)
    rows: list[Row] = cursor.fetchall()
    return rows


def _strings(messages: str, payload: str, objects: bool) -> str:
    """Return the array as the procedures of SQL Server take it, and any other value unchanged."""
    try:
        elements = [raw for _, raw in _raw(messages, "[")]
        if objects:
            fields = [dict(_raw(element, "{")) for element in elements]
            return json.dumps([
                {name: raw if name == "headers" else json.loads(raw) for name, raw in each.items() if name != "payload"}
                | {"payload": _string(each["payload"], payload)}
                for each in fields
            ])  # fmt: skip
        return json.dumps([_string(element, payload) for element in elements])
    except (ValueError, KeyError):
        return messages


def _string(raw: str, payload: str) -> str:
    value = raw if payload == "json" else json.loads(raw)
    return b64decode(value).hex() if payload == "bytes" else value


def _raw(text: str, opening: str) -> Iterator[tuple[str, str]]:
    """Return the exact text of each element of a JSON array or object, with its name in an object."""
    decode, blank = json.JSONDecoder().raw_decode, re.compile(r"[\s,:]*")

    def value(start: int) -> tuple[str, int]:
        begin = blank.match(text, start).end()  # type: ignore[union-attr]  # it matches nothing too
        if text[begin : begin + 1] in ("]", "}", ""):
            raise StopIteration
        return text[begin : (end := decode(text, begin)[1])], end

    if not text.lstrip().startswith(opening):
        raise ValueError(text)
    at = text.index(opening) + 1
    while True:
        name = ""
        try:
            if opening == "{":
                name, at = value(at)
            raw, at = value(at)
        except StopIteration:
            return
        yield json.loads(name or '""'), raw


REQUIRED = {
    "push": ("payload",),
    "push_many": ("messages",),
    "push_each": ("messages",),
    "complete": ("ids", "token"),
    "fail": ("id", "token", "error"),
    "release": ("ids", "token"),
    "extend": ("id", "token"),
    "cancel": ("ids",),
}

# By the engine names of tests/servers.py.
CALLS: dict[str, Call] = {"postgresql": on_postgresql, "mariadb": on_mariadb, "mssql": on_mssql}


@cache
def procedural(engine: type[Engine], kind: str) -> type[Engine]:
    """Return the engine, with each verb calling its procedure if it has one.

    Only the procedures sweep, and nothing else does.
    """
    call = partial(on_mssql, in_steps=True) if kind == "mssql" else CALLS[kind]
    # On these engines an error aborts the transaction if there is no savepoint before it, and on SQL Server always.
    saves, dooms = kind == "postgresql", kind == "mssql"

    def under_savepoints(method: F) -> F:
        return operation(Effect.STEP)(method) if saves else method

    class Installing(type(engine.catalogue)):  # type: ignore[misc]
        def create(self, cursor: Cursor, table: Table, params: Params) -> None:
            super().create(cursor, table, params)
            procedures.install(table.engine, cursor, table)

    class Procedural(type(engine.messages)):  # type: ignore[misc]
        def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
            given = _options(table.definition, params) | {"payload": params["payload"], "key": params["key"]}
            return call(cursor, table, "push", given | {"on_conflict": "skip"})[0][0]

        def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
            texts = [_json(table.definition, payload) for payload in params["payloads"]]
            given = _options(table.definition, params) | {"messages": f"[{','.join(texts)}]"}
            return [row[0] for row in call(cursor, table, "push_many", given)]

        def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
            rows = [_object(table.definition, row) for row in params["rows"]]
            given = {name: params[name] for name in ("producer", "now")}
            given |= {"messages": f"[{','.join(rows)}]", "on_conflict": "skip"}
            return [row[0] for row in call(cursor, table, "push_each", given)]

        def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
            given = {name: params[name] for name in ("n", "consumer", "now")}
            if table.definition.delivery == "at_least_once":
                given["lease"] = params["lease"]
            rows = call(cursor, table, "pop", given)
            if rows:
                TOKENS[params["token"]] = [*dict.fromkeys(str(row[-1]) for row in rows)]
            return [row[:-1] for row in rows]

        @under_savepoints
        def complete_and_claim(self, cursor: Cursor, table: Table, params: Any) -> Any:
            return Messages.complete_and_claim(self, cursor, table, params)  # no procedure does both

        def take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
            if params["token"] is not None:
                return self.claim(cursor, table, params)
            return call(cursor, table, "take", {name: params[name] for name in ("n", "consumer", "now")})

        def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
            return 0

        @under_savepoints
        def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
            return [row[0] for row in self._held(cursor, table, "complete", params, ("ids", "now"))]

        @under_savepoints
        def release(self, cursor: Cursor, table: Table, params: Params) -> dict[int, bool]:
            # The procedure promotes by itself.
            ids = [row[0] for row in self._held(cursor, table, "release", params, ("ids", "delay", "now"))]
            return dict.fromkeys(ids, False)

        @under_savepoints
        def fail(self, cursor: Cursor, table: Table, params: Params) -> dict[int, str]:
            delays = params["delays"]
            if isinstance(delays, str):
                delays = [delay for _, delay in json.loads(delays)]
            retries = [{"retry_in": delay} for delay in delays]
            return self._each(cursor, table, "fail", params, retries, FAIL)

        def cancel(self, cursor: Cursor, table: Table, params: Params) -> list[tuple[int, bool]]:
            rows = call(cursor, table, "cancel", {name: params.get(name) for name in ("ids", "now")})
            return [(id, bool(told)) for id, told in rows]

        @under_savepoints
        def extend(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
            leases = [{"seconds": params["lease"]}] * len(table.engine.load_ids(params["ids"]))
            return self._each(cursor, table, "extend", params, leases, ("id", "seconds", "now"))

        def _each(
            self,
            cursor: Cursor,
            table: Table,
            verb: str,
            params: Params,
            more: Sequence[dict[str, Any]],
            names: Sequence[str],
        ) -> dict[int, Any]:
            """Call a procedure for each message. Return what it answers for those that are held."""
            answers: dict[int, Any] = {}
            for id, own in zip(table.engine.load_ids(params["ids"]), more, strict=True):
                if rows := self._held(cursor, table, verb, params | {"id": id} | own, names):
                    answers[id] = rows[0][0]
            return answers

        def _held(self, cursor: Cursor, table: Table, verb: str, params: Params, names: Sequence[str]) -> list[Row]:
            """Return the rows of a procedure that acts under a token; none if it reports that the lease is lost."""
            steps: list[Any] = steps_of_ids(cast(Any, params)) if dooms and "ids" in names else [params]
            tokens = TOKENS.get(params["token"], [params["token"]])
            given = [{name: step[name] for name in names} | {"token": token} for step in steps for token in tokens]
            return [row for each in given for row in self._under(cursor, table, verb, each)]

        def _under(self, cursor: Cursor, table: Table, verb: str, given: Params) -> list[Row]:
            if dooms and not _holds(cursor, table, given):
                return []
            if saves:
                cursor.execute("savepoint tablequeue_tests")
            try:
                return call(cursor, table, verb, given)
            except Exception as error:
                if not isinstance(table.engine.translate(error), errors.LeaseLost):
                    raise
                if saves:
                    cursor.execute("rollback to savepoint tablequeue_tests")
                return []

    parts = {"catalogue": Installing, "messages": Procedural}
    return with_parts(engine, parts, sweeps_within=True)


FAIL = ("id", "error", "retry_in", "now")


def _holds(cursor: Cursor, table: Table, given: Params) -> bool:
    """Return whether any message of a call is held under the token, on SQL Server."""
    ids = given["ids"] if "ids" in given else f"[{given['id']}]"
    where = table.engine.words(table)["history" if table.definition.delivery == "at_most_once" else "queue"]
    text = (
        f"select 1 as held from {where} where token = cast(:token as uniqueidentifier)"  # noqa: S608 (checked names)
        " and id in (select given.id from openjson(cast(:ids as nvarchar(max))) with (id bigint '$') as given)"
    )
    cursor.execute(Batch(text), {"ids": ids, "token": str(given["token"]).replace("-", "").lower()})
    return bool(cursor.fetchall())


def _queue(table: Table) -> str:
    return table.engine.words(table)["queue"]


def _options(definition: Definition, params: Params) -> Params:
    """Return the options of a push, without those that only the verbs set."""
    given = {name: params[name] for name in ("headers", "delay", "due", "producer", "now")}
    if definition.groups:
        given["group"] = params["group"]
    if definition.order == "priority":
        given["priority"] = params["priority"]
    if definition.expires:
        given["expires"] = params["expires"]
    return given


def _object(definition: Definition, row: Params) -> str:
    """Return a message for push_each, whose payload and headers are JSON already."""
    given = {name: row[name] for name in ("delay", "key")}
    given["due"] = row["due"].isoformat() if isinstance(row["due"], datetime) else row["due"]
    own = ("group", "priority", "expires")
    given |= {name: value for name, value in _options(definition, row).items() if name in own}
    texts = {name: json.dumps(value) for name, value in given.items() if value is not None}
    texts["payload"] = _json(definition, row["payload"])
    if row["headers"] is not None:
        texts["headers"] = row["headers"]
    return "{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}"


def _json(definition: Definition, payload: str | bytes) -> str:
    if isinstance(payload, bytes):
        return json.dumps(b64encode(payload).decode())
    return payload if definition.payload == "json" else json.dumps(payload)


# The engines that have procedures: as they are, and with verbs that call the procedures.
PLAIN = [kind for kind in KINDS if kind.name in CALLS]
PROCEDURAL = [VariantKind.of(kind, "procedures", partial(procedural, kind=kind.name), DESIGNS) for kind in PLAIN]
