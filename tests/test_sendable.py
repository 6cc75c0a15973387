"""A test that fails with a text that xdist cannot send fails by itself, and does not end the process of the tests."""

from __future__ import annotations

import warnings

import execnet
import pytest

from tests.conftest import pytest_warning_recorded


def test_a_failure_with_a_lone_surrogate_is_sent(request: pytest.FixtureRequest) -> None:
    report = pytest.TestReport(
        "test", ("file", 1, "test"), {}, "failed", "failed \udc80", "call", sections=[("log", "\udc80")]
    )
    with pytest.raises(execnet.DumpError):
        execnet.dumps(report.longrepr)
    data = request.config.hook.pytest_report_to_serializable(config=request.config, report=report)
    sent = execnet.loads(execnet.dumps(data))
    assert (sent["longrepr"], sent["sections"]) == ("failed \\udc80", [("log", "\\udc80")])


def test_a_warning_with_a_lone_surrogate_is_sent() -> None:
    warning = warnings.WarningMessage(UserWarning("warned \udc80"), UserWarning, "file", 1)
    pytest_warning_recorded(warning)
    assert execnet.loads(execnet.dumps(str(warning.message))) == "warned \\udc80"
