"""What of a URL is secret: where people can read it, it is hidden or refused."""

from __future__ import annotations

import re

# The names of options of a URL whose values are secret.
_NAMES = "passw|pwd|secret|token|odbc_connect"

PASSWORD = rf"://[^:/]*:[^@]*@|(?i:[?&;][^=&]*(?:{_NAMES})[^=&]*=)"
"""Is found in a text that has a URL with a password, before its host or among its options. For Python and for Java."""


def has_password(text: str) -> bool:
    """Whether there is a URL with a password in it."""
    return re.search(PASSWORD, text) is not None


def is_secret(option: str) -> bool:
    """Whether the value of an option of a URL is secret, by its name."""
    return re.search(_NAMES, option, re.IGNORECASE) is not None
