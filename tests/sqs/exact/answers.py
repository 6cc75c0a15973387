"""What a call is answered by, if that is an error."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError


def answer(call: Any, **options: Any) -> tuple[str, int, str]:
    """Return the code, the status and the words of the error of a call."""
    with pytest.raises(ClientError) as caught:
        call(**options)
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Message"]
