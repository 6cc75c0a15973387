"""The site of `make docs`: these pages, a reference made of the docstrings, and one made of the commands."""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from pygments.lexers.sql import MySqlLexer, PostgresLexer
from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent

project = "tablequeue"
author = "The developers of tablequeue"
version = release = version_of("tablequeue")
exclude_patterns = ["README.md", "adr/README.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click", "sphinxcontrib.mermaid"]
html_theme = "furo"
html_title = "tablequeue"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature would be longer than the text; the docstring names units and meanings
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "exclude-members": "context"}
mermaid_height = "auto"
mermaid_fullscreen = False
default_role = "py:obj"  # a name in `backticks` becomes a link where it is one of ours
# Mermaid, which draws the diagrams, as scripts/install-mermaid has brought it; without it a browser asks a CDN for it.
if (MERMAID := ROOT / "site" / "static").exists():
    html_static_path.append(str(MERMAID))
    mermaid_use_local = "mermaid/mermaid.esm.min.mjs"
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Pages that the site has elsewhere than the checkout: those in the folder project/ include them.
PAGES = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "docs/README.md": "project/pages.md",
    "docs/adr/README.md": "project/decisions.md",
}
LINK = re.compile(r"\[([^\[\]]+)\]\(([^()\s:]+)\)")
OPTION = re.compile(r"^(\S+(?: \S+)*) {2,}(\S.*)$")
# Parameters of classes that only the library makes.
MADE_BY_US = re.compile(r"\b(context|runner)\b")


def setup(app: Sphinx) -> None:
    app.add_lexer("sql", PostgresLexer)
    app.add_lexer("mariadb", MySqlLexer)
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", read_signature)


def read_page(app: Sphinx, name: str, text: list[str]) -> None:
    folder = Path(app.srcdir, name).parent
    text[0] = with_links(text[0], folder, folder)


def read_included(app: Sphinx, path: Path, parent: str, text: list[str]) -> None:
    text[0] = with_links(text[0], Path(app.srcdir, path).parent, HERE / "project")


def with_links(text: str, folder: Path, page: Path) -> str:
    """Return a text with links that lead to pages of the site. Of a link to code the words stay.

    folder   where the links begin; `page` is the folder of the page that has the text.
    """

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        path, hash, anchor = target.partition("#")
        if not path:
            return found[0]
        try:
            there = (folder / path).resolve().relative_to(ROOT).as_posix()
        except ValueError:
            return found[0]
        if there not in PAGES and not there.startswith("docs/"):
            return words
        there = PAGES.get(there, there.removeprefix("docs/"))
        up = "../" * len(page.relative_to(HERE).parts)
        return f"[{words}]({up}{there}{hash if anchor else ''}{anchor})"

    return LINK.sub(link, text)


def read_docstring(app: Sphinx, what: str, name: str, object: Any, options: Any, lines: list[str]) -> None:
    """Turn the options of a docstring, `name   meaning` with a hanging indent, into a definition list."""
    read: list[str] = []
    inside = False
    for line in lines:
        if option := OPTION.match(line):
            if not inside and read and read[-1]:
                read.append("")
            read += [f"``{option[1]}``", f"    {option[2]}"]
            inside = True
        elif inside and line.startswith(" "):
            read.append(f"    {line.strip()}")
        else:
            if inside and line:
                read.append("")
            inside = False
            read.append(line)
    lines[:] = read


def read_signature(
    app: Sphinx, what: str, name: str, object: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, None] | None:
    """Leave out the parameters of a class that a program does not make itself."""
    return ("", None) if what == "class" and MADE_BY_US.search(signature or "") else None
