"""Signature Version 4: who signed a request, and whether the signature is right. Botocore's own signer computes it.

A signature is in the header `Authorization`, or in the query string of a URL that was signed in advance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tablequeue.sqs.errors import SqsError

SKEW = timedelta(minutes=15)
LONGEST = 604_800
"""Seconds for which a URL may be signed: a week."""
SERVICE = "sqs"
_ALGORITHM = "AWS4-HMAC-SHA256"
_HEADER = re.compile(
    rf"{_ALGORITHM} Credential=(?P<credential>[^,\s]+),\s*SignedHeaders=(?P<headers>[^,\s]+),"
    r"\s*Signature=(?P<signature>[^,\s]+)"
)
_CREDENTIAL = re.compile(
    r"(?P<key>[^/\s]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)/aws4_request"
)
_SIGNED_HEADERS = re.compile(r"[a-z0-9;-]+")
_TIME = "%Y%m%dT%H%M%SZ"


class Signature(NamedTuple):
    """A signature as a request has it. `valid` is for how long it is valid; None: as long as clocks may differ."""

    key: str
    date: str
    region: str
    headers: list[str]
    time: str
    text: str
    valid: int | None


def claimed(headers: Mapping[str, str], query: str) -> tuple[str, str | None]:
    """Return the access key and the region that a request names, whoever signed it: "" and None if it is not signed."""
    header = re.search(r"Credential=([^,\s]+)", headers.get("authorization", ""))
    text = header[1] if header else dict(parse_qsl(query)).get("X-Amz-Credential", "") if "X-Amz-" in query else ""
    found = _CREDENTIAL.fullmatch(text)
    return (found["key"], found["region"]) if found else ("", None)


def verify(
    scope: MutableMapping[str, Any], headers: Mapping[str, str], body: bytes, secrets: Mapping[str, str]
) -> None:
    """Refuse a request that is not signed with one of the secret keys; `secrets` has them by access key."""
    query = scope["query_string"].decode("latin-1")
    signature = _signature(headers, query)
    secret = secrets.get(signature.key)
    if secret is None:
        raise SqsError("InvalidClientTokenId", "The security token included in the request is invalid.")
    _check_time(signature)
    right = compare_digest(_expected(scope, headers, query, body, secret, signature), signature.text)
    if not right or not _is_of_all(headers, body, signature):
        raise SqsError(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
        )


def _signature(headers: Mapping[str, str], query: str) -> Signature:
    """Return the signature of a request; `SqsError` if it has none, or one that cannot be read."""
    incomplete = SqsError("IncompleteSignature", "The request has no complete signature of Signature Version 4.")
    parameters = dict(parse_qsl(query)) if "X-Amz-" in query else {}
    given, valid = headers.get("authorization"), None
    if given is not None:
        found = _HEADER.fullmatch(given.strip())
        if found is None:
            raise incomplete
        credential, signed, text, time = (
            *found.group("credential", "headers", "signature"),
            headers.get("x-amz-date", ""),
        )
    elif parameters.get("X-Amz-Algorithm") == _ALGORITHM:
        names = ("Credential", "SignedHeaders", "Signature", "Date", "Expires")
        credential, signed, text, time, seconds = (parameters.get(f"X-Amz-{name}", "") for name in names)
        if re.fullmatch(r"\d{1,6}", seconds) is None or int(seconds) > LONGEST:
            raise incomplete
        valid = int(seconds)
    else:
        raise SqsError("MissingAuthenticationToken", "Request is missing Authentication Token")
    who = _CREDENTIAL.fullmatch(credential)
    if who is None or who["service"] != SERVICE:
        raise incomplete
    if not time.startswith(who["date"]) or not text.isascii():  # `compare_digest` takes only ASCII text
        raise incomplete
    if not _SIGNED_HEADERS.fullmatch(signed) or "host" not in signed.split(";") or "host" not in headers:
        raise incomplete
    return Signature(who["key"], who["date"], who["region"], signed.split(";"), time, text, valid)


def _check_time(signature: Signature) -> None:
    try:
        time = datetime.strptime(signature.time, _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise SqsError("IncompleteSignature", "The request has no X-Amz-Date.") from None
    now = datetime.now(UTC)
    if time > now + SKEW:
        words = f"Signature not yet current: {signature.time} is still later than {now + SKEW:{_TIME}}"
        raise SqsError("SignatureDoesNotMatch", f"{words} ({now:{_TIME}} + 15 min.)")
    if signature.valid is not None:
        if now > time + timedelta(seconds=signature.valid):
            raise SqsError("RequestExpired", "Request has expired.")
    elif time < now - SKEW:
        words = f"Signature expired: {signature.time} is now earlier than {now - SKEW:{_TIME}}"
        raise SqsError("SignatureDoesNotMatch", f"{words} ({now:{_TIME}} - 15 min.)")


def _is_of_all(headers: Mapping[str, str], body: bytes, signature: Signature) -> bool:
    """Whether a signature covers the operation and the body, and not only a header about the body."""
    if "x-amz-target" in headers and "x-amz-target" not in signature.headers:
        return False
    if "x-amz-content-sha256" not in signature.headers:
        return True
    return headers.get("x-amz-content-sha256") == sha256(body).hexdigest()


def _expected(
    scope: MutableMapping[str, Any],
    headers: Mapping[str, str],
    query: str,
    body: bytes,
    secret: str,
    signature: Signature,
) -> str:
    """Return the signature that the request must have."""
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    signed = "&".join(part for part in query.split("&") if not part.startswith("X-Amz-Signature="))
    url = f"http://{headers['host']}{path.decode('latin-1')}" + (f"?{signed}" if signed else "")
    given = {name: headers[name] for name in signature.headers if name in headers}
    request = AWSRequest(scope["method"], url, headers=given, data=body)
    request.context["timestamp"] = signature.time
    signer = SigV4Auth(Credentials(signature.key, secret), SERVICE, signature.region)
    text: str = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return text
