"""Loads a pipeline from a Python file."""

from __future__ import annotations

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from pyspark.cloudpickle import register_pickle_by_value

from tablequeue.errors import BadInput, TablequeueError
from tablequeue.spark.pipeline.stages import Pipeline


def load(target: str) -> Pipeline:
    """Return the pipeline of `pipeline.py`, or the pipeline `name` of `pipeline.py:name`. Raises `BadInput` if none.

    The file can import modules from its folder, and from the current one. The functions in the file itself are sent to
    the executors; modules that it imports must be installed there.
    """
    words, _, name = target.rpartition(":")
    if not words:
        words, name = target, ""
    path = Path(words)
    if not path.is_file():
        raise BadInput(f"There is no file {words!r}.", "Write FILE or FILE:NAME.")
    found = {key: value for key, value in vars(_run(path)).items() if isinstance(value, Pipeline)}
    if name and name not in found:
        raise BadInput(f"{words} has no pipeline {name!r}.", f"Name one of: {', '.join(found) or 'it has none'}.")
    if name:
        return found[name]
    if len(found) != 1:
        raise BadInput(
            f"{words} has {len(found) or 'no'} pipelines{':' if found else ''} {', '.join(found)}".strip() + ".",
            f"Name one: {words}:NAME." if found else "Define one: Pipeline(...).",
        )
    return next(iter(found.values()))


def _run(path: Path) -> ModuleType:
    for folder in (str(Path.cwd()), str(path.parent.resolve())):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{str(path)!r} is not a Python file.", "Give it a name that ends in .py.")
    module = module_from_spec(spec)
    # Dataclasses look up their module while it is executed.
    sys.modules[path.stem] = module
    register_pickle_by_value(module)
    try:
        spec.loader.exec_module(module)
    except TablequeueError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        place = "" if line is None else f", line {line}"
        raise BadInput(f"{path} cannot be loaded: {words}{place}.", "Correct it.") from error
    return module
