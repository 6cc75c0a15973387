"""Options and commands for what docs/control.md is about."""

from __future__ import annotations

from tests.cli.support import Run, lines


def test_expiry_keys_and_results(run: Run) -> None:
    run("queue", "create", "work", "--expires", 300, "--unique-for", 60, "--results")
    id = run("push", "work", "1", "--expires", 100, "--key", "k", "--unique-for", 30).stdout.strip()
    (claimed,) = lines(run("pop", "work", "--json"))
    assert "in_progress" in run("result", "work", id, code=3).stderr
    run("complete", "work", id, claimed["token"], "--result", '{"sum": 6}')
    assert lines(run("result", "work", id, "--wait", 10)) == [{"sum": 6}]
    assert run("push", "work", "2", "--key", "k", "--on-conflict", "return").stdout.strip() == id
    run("queue", "create", "plain")
    run("queue", "create", "reports", "--batches")
    assert "do not expire" in run("push", "plain", "1", "--expires", 5, code=1).stderr
