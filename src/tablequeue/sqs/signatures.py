"""Signature Version 4: who signed a request, and whether the signature is right. Botocore's own signer computes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import Any
from urllib.parse import quote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tablequeue.sqs.errors import SqsError

SKEW = timedelta(minutes=15)
SERVICE = "sqs"
_SCOPE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)"
    r"/aws4_request,\s*SignedHeaders=(?P<headers>[a-z0-9;-]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_REGION = re.compile(r"Credential=[^/,\s]+/\d{8}/([a-z0-9-]+)/")
_TIME = "%Y%m%dT%H%M%SZ"


def region(headers: Mapping[str, str]) -> str | None:
    """Return the region that a request was signed for; None if it is not signed."""
    found = _REGION.search(headers.get("authorization", ""))
    return found and found[1]


def verify(
    scope: MutableMapping[str, Any], headers: Mapping[str, str], body: bytes, secrets: Mapping[str, str]
) -> None:
    """Refuse a request that is not signed with one of the secret keys; `secrets` has them by access key."""
    given = headers.get("authorization")
    if given is None:
        raise SqsError("MissingAuthenticationToken", "Request is missing Authentication Token")
    found = _SCOPE.fullmatch(given.strip())
    if found is None or found["service"] != SERVICE or "host" not in found["headers"].split(";"):
        raise SqsError("IncompleteSignature", "The Authorization header is not one of Signature Version 4.")
    secret = secrets.get(found["key"])
    if secret is None:
        raise SqsError("InvalidClientTokenId", "The security token included in the request is invalid.")
    time = headers.get("x-amz-date", "")
    _check_time(time, found["date"])
    expected = _signature(scope, headers, body, Credentials(found["key"], secret), found, time)
    if not compare_digest(expected, found["signature"]):
        raise SqsError(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
        )


def _check_time(text: str, date: str) -> None:
    try:
        time = datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise SqsError("IncompleteSignature", "The request has no X-Amz-Date.") from None
    if abs(datetime.now(UTC) - time) > SKEW or not text.startswith(date):
        raise SqsError("SignatureDoesNotMatch", f"Signature expired or not yet current: {text}")


def _signature(
    scope: MutableMapping[str, Any],
    headers: Mapping[str, str],
    body: bytes,
    credentials: Credentials,
    found: re.Match[str],
    time: str,
) -> str:
    """Return the signature that the request must have."""
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    query = scope["query_string"].decode("latin-1")
    url = f"http://{headers['host']}{path.decode('latin-1')}" + (f"?{query}" if query else "")
    signed = {name: headers[name] for name in found["headers"].split(";") if name in headers}
    request = AWSRequest(scope["method"], url, headers=signed, data=body)
    request.context["timestamp"] = time
    signer = SigV4Auth(credentials, SERVICE, found["region"])
    text: str = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return text
