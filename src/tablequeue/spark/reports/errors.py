"""Retries and dead letters, by the error that caused them."""

from __future__ import annotations

from tablequeue.spark.reports.messages import FAILURES

LONGEST = 200

# Eight or more digits of hexadecimal with a digit among them, by the number of letters before the first one: RE2, which
# DuckDB matches by, does not look ahead.
_HEX = "|".join(
    f"[{letters}]{{{before},}}[0-9][0-9{letters}]*"
    if before == 7
    else f"[{letters}]{{{before}}}[0-9][0-9{letters}]{{{7 - before},}}"
    for letters in ("a-f", "A-F")
    for before in range(8)
)
_SPACE = r" \t\n\x0B\f\r"


def kind_of(error: str) -> str:
    """Return the text that errors of one kind have in common.

    This is the last line (the exception in a traceback), cut to 200 characters, with an ellipsis for each number of at
    least four digits, or eight hexadecimal ones. Long numbers identify a message; short ones are a part of the error,
    as in HTTP 503.
    """
    last = rf"regexp_extract({error}, '([^\n]*[^{_SPACE}])[{_SPACE}]*$', 1)"
    return rf"substring(regexp_replace({last}, '\b([0-9]{{4,}}|{_HEX})\b', '…'), 1, {LONGEST})"


ERRORS = f"""
    select queue, {kind_of("failure.error")} as error, count(*) as failures, count(distinct id) as messages,
        count(distinct case when state = 'finished' then id end) as finished,
        count(*) filter (where state = 'dead' and last) as dead,
        min(failure."at") as first_at, max(failure."at") as last_at
    from ({FAILURES}) as failures group by 1, 2 order by 1, 3 desc, 2
"""
"""A row for each error of each queue, the most frequent first.

Columns: queue, error, failures (attempts that ended with it), messages (that had it), finished (messages that had it
and were finished later), dead (dead letters whose last error it was), first_at, last_at.
"""
