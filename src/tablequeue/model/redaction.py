"""The secrets in a URL, which are hidden or refused wherever people could read them."""

from __future__ import annotations

import re

# The names of the options of a URL that have secret values.
_NAMES = "passw|pwd|secret|token|odbc_connect"

PASSWORD = rf"://[^:/]*:[^@]*@|(?i:[?&;][^=&]*(?:{_NAMES})[^=&]*=)"
"""A pattern for texts with a URL that has a password, before the host or among the options. For Python and Java."""


def has_password(text: str) -> bool:
    """Whether the text has a URL with a password."""
    return re.search(PASSWORD, text) is not None


def is_secret(option: str) -> bool:
    """Whether the value of a URL's option is secret, by the name of the option."""
    return re.search(_NAMES, option, re.IGNORECASE) is not None
