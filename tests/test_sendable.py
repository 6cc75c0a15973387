"""A test whose failure pytest cannot describe, or xdist not send, fails by itself: it does not end the run."""

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


@pytest.mark.filterwarnings("ignore::pluggy.PluggyTeardownRaisedWarning")
def test_a_failure_that_pytest_cannot_describe_is_reported(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise SystemError("AST constructor recursion depth mismatch")

    def test() -> None:
        raise ValueError("why")

    call = pytest.CallInfo.from_call(test, "call")
    monkeypatch.setattr(pytest.TestReport, "from_item_and_call", fail)
    report = request.config.hook.pytest_runtest_makereport(item=request.node, call=call)
    monkeypatch.undo()
    assert (report.outcome, report.when) == ("failed", "call")
    assert "ValueError: why" in report.longrepr


def test_a_warning_with_a_lone_surrogate_is_sent() -> None:
    warning = warnings.WarningMessage(UserWarning("warned \udc80"), UserWarning, "file", 1)
    pytest_warning_recorded(warning)
    assert execnet.loads(execnet.dumps(str(warning.message))) == "warned \\udc80"
