"""The address of a queue: its account, its region and its name, from its URL or a host."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

_REGION = r"[a-z]{2}(?:-[a-z]+)+-[0-9]"
_IN_HOST = re.compile(rf"(?:(?:sqs|queue)\.({_REGION})|({_REGION})\.(?:sqs|queue))(?:\.|:|$)")
_IN_PATH = re.compile(rf"(?:.*/)?({_REGION})/[0-9]{{12}}/[^/]*")
_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[^:]*:[^:]*:[^:]+")
# Prefixes of regions with another partition than `aws` in their ARNs.
_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
ACCOUNT = re.compile("[0-9]{12}")
REMEMBERED = 500
"""The most characters of a URL that is kept in the cache."""


class Owner(NamedTuple):
    """The account and the region of a client or a queue. Queues of one name with two owners are two queues."""

    account: str
    region: str

    def arn(self, name: str) -> str:
        partition = next((of for start, of in _PARTITIONS.items() if self.region.startswith(start)), "aws")
        return f"arn:{partition}:sqs:{self.region}:{self.account}:{name}"

    def path(self, name: str) -> str:
        return f"/{self.account}/{quote(name, safe='')}"

    def of(self, url: str) -> tuple[Owner, str]:
        """Return the owner and the name of a queue by its URL, path or name. This owner supplies a missing account or
        region."""
        return _parsed(self, url) if len(url) <= REMEMBERED else _parsed.__wrapped__(self, url)


@lru_cache(maxsize=1000)
def _parsed(owner: Owner, url: str) -> tuple[Owner, str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return owner, ""  # no queue has this name
    path = parts.path.rstrip("/")
    *before, name = path.split("/")
    account = before[-1] if before and ACCOUNT.fullmatch(before[-1]) else owner.account
    found = _IN_PATH.fullmatch(path)
    return Owner(account, (found and found[1]) or region_in(parts.netloc) or owner.region), unquote(name)


def of_arn(arn: str) -> tuple[Owner, str]:
    """Return the owner and the name of the queue of an ARN."""
    region, account, name = arn.split(":")[-3:]
    return Owner(account, region), name


def is_arn(text: str) -> bool:
    """Whether a text has the form of the ARN of a queue."""
    return _ARN.fullmatch(text) is not None


def region_in(host: str) -> str | None:
    """Return the region that a host names, as `sqs.eu-west-1.example.com` does; None if it names none."""
    found = _IN_HOST.match(host)
    return found and (found[1] or found[2])
