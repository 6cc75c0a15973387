"""The definition of a pipeline: its name, its database, and its stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession

from tablequeue.errors import BadInput
from tablequeue.model.names import check_identifier
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline import failures
from tablequeue.spark.pipeline import rejects as rejecting
from tablequeue.spark.pipeline.archiving import Archive
from tablequeue.spark.pipeline.rules import OnViolation, Rules
from tablequeue.spark.pipeline.sinks import Sink, ToTopic, Transform
from tablequeue.spark.pipeline.sources import FromQueue, FromTopic, Source

URL_ENV = "TABLEQUEUE_URL"


def check_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """Return settings of Spark, if a pipeline may have them; else `BadInput`."""
    for name, value in conf.items():
        if name == "spark.master":
            raise BadInput("The setting spark.master is no setting of a pipeline.", "Use --master.")
        if not name.startswith("spark.") or not isinstance(value, str):
            raise BadInput(
                f"{name}={value!r} is no setting of Spark.", "Its name begins with spark., and its value is a text."
            )
    return dict(conf)


@dataclass(frozen=True, slots=True)
class Stage:
    """A streaming query: `function` transforms the DataFrame of the source, and its rows go to every sink.

    path   `pipeline/stage`: name of the query and of the stream, and producer of the messages that it pushes.
    """

    name: str
    path: str
    source: Source
    function: Transform
    sinks: tuple[Sink, ...]
    output_mode: str
    rules: Rules | None = None
    rejects: ToTopic | None = None

    @property
    def reads(self) -> int:
        """How often a batch reads a message: a topic once more for those that do not fit their schema."""
        return 2 if self.rejects is not None and isinstance(self.source, FromTopic) and self.source.schema else 1

    def rows(self, spark: SparkSession, database: Mapping[str, str]) -> DataFrame:
        """Return the rows of the stage. Columns of ours say what is done with rows that no sink gets."""
        of_queue = isinstance(self.source, FromQueue)
        unfitting = None
        if self.reads == 2:
            assert isinstance(self.source, FromTopic), "it is read twice"
            loaded = self.source.load(spark, database, self.path, f"*,{failures.ERROR}")
            loaded, unfitting = failures.separated(loaded)
        else:
            loaded = self.source.load(spark, database, self.path)
        rows = self.function(loaded)
        if not isinstance(rows, DataFrame):
            raise BadInput(f"Its function returned a {type(rows).__name__}.", "Return a DataFrame.")
        if self.rules is not None:
            rows = self.rules.applied(rows, self.path, of_queue=of_queue)
        if unfitting is not None:
            rows = rejecting.united(rows, unfitting, self.path)
        return failures.observed(rows) if of_queue else rows


class Pipeline:
    """Stages, in the order in which a run with `available_now` runs them.

    url        URL of the database of the queues, if it has no password;
    url_env    or an environment variable with the URL, on the driver and every executor (default: TABLEQUEUE_URL);
    url_file   or a file with the URL there.
    schema     schema of the queues.
    conf       settings of Spark for the session that `tablequeue pipeline run` starts, by name. Options of the command
               override them. A session of yours has its own.

    The queues, topics and subscriptions must exist: a pipeline creates none.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        url_env: str | None = None,
        url_file: str | None = None,
        schema: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        if url is url_env is url_file is None:
            url_env = URL_ENV
        given = {"url": url, "urlEnv": url_env, "urlFile": url_file, "schema": schema}
        self.name = check_identifier(name, "pipeline")
        self.database = {key: value for key, value in given.items() if value is not None}
        """The database of the queues, as options of the data source."""
        Options.of_database(self.database)  # raises here what it would raise later
        self.conf = check_conf(conf or {})
        self.stages: dict[str, Stage] = {}
        self.archives: dict[str, Archive] = {}

    def stage(
        self,
        source: Source,
        *sinks: Sink,
        name: str | None = None,
        output_mode: str = "append",
        expect: Mapping[str, Column | str] | None = None,
        on_violation: OnViolation = "dead",
        rejects: ToTopic | None = None,
    ) -> Callable[[Transform], Transform]:
        """Declare a stage by decorating its function, which transforms a streaming DataFrame.

        The function may use state and watermarks. The default name is that of the function. Name and checkpoint
        identify the position of a stage: with another name it is another stage. Messages of a queue fail if a row has a
        column `error` that is not null; see `attempt`. `output_mode` is Spark's: append, update or complete.

        expect         rules about the rows that the function returns: SQL conditions by name. A row for which one is
                       not true (false or null) breaks it. Progress counts such rows by rule.
        on_violation   what happens to such a row. `dead`: its message becomes a dead letter, or goes to `rejects` if
                       the stage reads no queue. `drop`: it is left out. `stop`: the stage fails. `warn`: it is written.
        rejects        the topic for messages that do not fit the schema of their payload or break a rule, of a stage
                       that reads no queue. Each is pushed once, with the reason or the rule in its headers.
        """
        rules = Rules(expect, on_violation) if expect else None

        def declare(function: Transform) -> Transform:
            chosen = self._new(name or function.__name__)
            if not sinks:
                raise BadInput(f"The stage {chosen!r} has no sink.", "Give it one, such as ToQueue(...).")
            if rejects is not None and isinstance(source, FromQueue):
                raise BadInput(
                    f"The stage {chosen!r} has rejects and reads a queue.",
                    "Leave rejects out: what a queue rejects becomes a dead letter.",
                )
            if rules and on_violation == "dead" and rejects is None and not isinstance(source, FromQueue):
                raise BadInput(
                    f"The stage {chosen!r} has rules and reads no queue: there are no dead letters.",
                    "Give it rejects=ToTopic(...), or on_violation with drop, stop or warn.",
                )
            targets = [sink.target for sink in (*sinks, *([rejects] if rejects else []))]
            for target in filter(None, targets):
                if targets.count(target) > 1:
                    raise BadInput(f"The stage {chosen!r} has two sinks to the {target}.", "Unite their rows in one.")
            path = f"{self.name}/{chosen}"
            self.stages[chosen] = Stage(chosen, path, source, function, sinks, output_mode, rules, rejects)
            return function

        return declare

    def add(self, archive: Archive, name: str = "archive") -> None:
        """Add an archive as a stage, which runs beside the others; with `available_now` after them."""
        self.archives[self._new(name)] = archive

    def _new(self, name: str) -> str:
        if check_identifier(name, "stage") in {*self.stages, *self.archives}:
            raise BadInput(f"The pipeline {self.name!r} has two stages {name!r}.", "Give one another name.")
        return name
