"""The definition of a pipeline: its name, its database, and its stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tablequeue.errors import BadInput
from tablequeue.model.names import check_identifier
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline.archiving import Archive
from tablequeue.spark.pipeline.sinks import Sink, Transform
from tablequeue.spark.pipeline.sources import Source

URL_ENV = "TABLEQUEUE_URL"


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


class Pipeline:
    """Stages, in the order in which a run with `available_now` runs them.

    url        URL of the database of the queues, if it has no password;
    url_env    or an environment variable with the URL, on the driver and every executor (default: TABLEQUEUE_URL);
    url_file   or a file with the URL there.
    schema     schema of the queues.

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
    ) -> None:
        if url is url_env is url_file is None:
            url_env = URL_ENV
        given = {"url": url, "urlEnv": url_env, "urlFile": url_file, "schema": schema}
        self.name = check_identifier(name, "pipeline")
        self.database = {key: value for key, value in given.items() if value is not None}
        """The database of the queues, as options of the data source."""
        Options.of_database(self.database)  # raises here what it would raise later
        self.stages: dict[str, Stage] = {}
        self.archives: dict[str, Archive] = {}

    def stage(
        self, source: Source, *sinks: Sink, name: str | None = None, output_mode: str = "append"
    ) -> Callable[[Transform], Transform]:
        """Declare a stage by decorating its function, which transforms a streaming DataFrame.

        The function may use state and watermarks. The default name is that of the function. Name and checkpoint
        identify the position of a stage: with another name it is another stage. Messages of a queue fail if a row has a
        column `error` that is not null; see `attempt`. `output_mode` is Spark's: append, update or complete.
        """

        def declare(function: Transform) -> Transform:
            chosen = self._new(name or function.__name__)
            if not sinks:
                raise BadInput(f"The stage {chosen!r} has no sink.", "Give it one, such as ToQueue(...).")
            targets = [sink.target for sink in sinks]
            for target in filter(None, targets):
                if targets.count(target) > 1:
                    raise BadInput(f"The stage {chosen!r} has two sinks to the {target}.", "Unite their rows in one.")
            path = f"{self.name}/{chosen}"
            self.stages[chosen] = Stage(chosen, path, source, function, sinks, output_mode)
            return function

        return declare

    def add(self, archive: Archive, name: str = "archive") -> None:
        """Add an archive as a stage, which runs beside the others; with `available_now` after them."""
        self.archives[self._new(name)] = archive

    def _new(self, name: str) -> str:
        if check_identifier(name, "stage") in {*self.stages, *self.archives}:
            raise BadInput(f"The pipeline {self.name!r} has two stages {name!r}.", "Give one another name.")
        return name
