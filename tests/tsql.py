"""Microsoft's own parser of T-SQL, from the language service of its editors: syntax and names of hints, no server.

It runs in a process of its own, which reads a script a line, as JSON, and answers with the errors of each: the .NET
runtime starts threads that a fork of the tests' process would not survive.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# What a .NET program says of the runtime it wants; the package dotnetcore2 has this one.
RUNTIME = {
    "runtimeOptions": {
        "tfm": "netcoreapp3.1",
        "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
    }
}


@cache
def parse_errors(sql: str) -> list[str]:
    """What the parser has against a script: `line:column message` for each error. Variables need no declaration."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(sql) + "\n")
    process.stdin.flush()
    answer: list[str] = json.loads(process.stdout.readline())
    return answer


@cache
def _process() -> subprocess.Popen[str]:
    # -P: the modules beside this file are no libraries.
    command = [sys.executable, "-P", __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    atexit.register(process.communicate)  # closes its input, which ends it
    return process


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is a dependency of the tests"
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin"


def _parser() -> tuple[Any, Any]:
    os.environ["DOTNET_SYSTEM_GLOBALIZATION_INVARIANT"] = "1"  # else it asks for the system's ICU
    import pythonnet
    from clr_loader import get_coreclr

    with TemporaryDirectory() as folder:
        config = Path(folder, "runtimeconfig.json")
        config.write_text(json.dumps(RUNTIME))
        pythonnet.set_runtime(get_coreclr(runtime_config=str(config), dotnet_root=str(_folder("dotnetcore2"))))
        import clr
    clr.AddReference(str(_folder("mssqltoolsservice") / "Microsoft.SqlServer.SqlParser.dll"))
    from Microsoft.SqlServer.Management.SqlParser.Parser import ParseOptions, Parser

    return Parser, ParseOptions


def _serve() -> None:
    parser, options = _parser()
    for line in sys.stdin:
        result = parser.Parse(json.loads(line), options())
        errors = [f"{error.Start.LineNumber}:{error.Start.ColumnNumber} {error.Message}" for error in result.Errors]
        print(json.dumps(errors), flush=True)


if __name__ == "__main__":
    _serve()
