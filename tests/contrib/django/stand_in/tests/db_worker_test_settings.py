"""The settings of the processes that the tests start: the same, on the database of the tests."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES["default"]["NAME"] = DATABASES["default"]["TEST"]["NAME"]
