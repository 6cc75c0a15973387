"""Microsoft's T-SQL parser, from the language service of its editors. It checks syntax and names of hints without a
server.

It runs in a process of its own, because the .NET runtime starts threads that would not survive a fork of the tests'
process. The process reads a script in each line, as JSON, and returns its errors.
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

# The runtime that a .NET program requests; the package dotnetcore2 contains this one.
RUNTIME = {
    "runtimeOptions": {
        "tfm": "netcoreapp3.1",
        "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
    }
}


@cache
def parse_errors(sql: str) -> list[str]:
    """Return the parser's errors in a script as `line:column message`. Variables need no declaration."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(sql) + "\n")
    process.stdin.flush()
    answer: list[str] = json.loads(process.stdout.readline())
    return answer


@cache
def _process() -> subprocess.Popen[str]:
    # -P, because the modules beside this file are not libraries.
    command = [sys.executable, "-P", __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    atexit.register(process.communicate)  # closes its input, which ends the process
    return process


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is a dependency of the tests"
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin"


def _parser() -> tuple[Any, Any]:
    os.environ["DOTNET_SYSTEM_GLOBALIZATION_INVARIANT"] = "1"  # otherwise it requires the system's ICU
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
