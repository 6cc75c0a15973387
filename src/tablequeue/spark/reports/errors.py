"""Retries and dead letters, by the error that caused them."""

from __future__ import annotations

from tablequeue.spark.reports.messages import FAILURES

LONGEST = 200

# After these words, a number says what failed, and not which message: "HTTP 503" is not "HTTP 404".
_CODES = ("HTTP ", "HTTP/1.1 ", "HTTP/2 ", "status ", "status code ", "Errno ", "exit code ")
_MARK = "q__q_"  # no number begins after a letter
# Eight or more digits of hexadecimal with a digit among them, by the number of letters before the first one: RE2, which
# DuckDB matches by, does not look ahead.
_HEX = "|".join(
    f"[{letters}]{{{before},}}[0-9][0-9{letters}]*"
    if before == 7
    else f"[{letters}]{{{before}}}[0-9][0-9{letters}]{{{7 - before},}}"
    for letters in ("a-f", "A-F")
    for before in range(8)
)
# What errors of one kind differ in: ids, times, addresses of programs, of machines and of people, and numbers.
_VARIES = "|".join(
    (
        r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9:.]*[0-9](Z|[+-][0-9]{2}:?[0-9]{2})?",
        r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+([.][A-Za-z0-9-]+)+",
        r"0[xX][0-9a-fA-F]+",
        r"[A-Za-z]+_[A-Za-z0-9]*[0-9][A-Za-z0-9]*",
        r"([0-9a-fA-F]{1,4}:)+(:[0-9a-fA-F]{1,4})+|([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}",
        _HEX,
        r"[0-9]+([.,:/-][0-9]+)*(ms|s|min|h|kB|KB|MB|GB)?",
    )
)
_SPACE = r" \t\n\x0B\f\r"


def kind_of(error: str) -> str:
    """Return the text that errors of one kind have in common.

    This is the last line (the exception in a traceback), cut to 200 characters, with an ellipsis for each number, id,
    time and address. Codes remain, as in HTTP 503.
    """
    marked = last_line(error)
    for words in _CODES:
        marked = f"replace({marked}, '{words}', '{words}{_MARK}')"
    return rf"substring(replace(regexp_replace({marked}, '\b({_VARIES})\b', '…'), '{_MARK}', ''), 1, {LONGEST})"


def last_line(error: str) -> str:
    """Return the last line with a text."""
    return rf"regexp_extract({error}, '([^\n]*[^{_SPACE}])[{_SPACE}]*$', 1)"


ERRORS = f"""
    select queue, {kind_of("failure.error")} as error, count(*) as failures, count(distinct id) as messages,
        count(distinct case when state = 'finished' then id end) as finished,
        count(*) filter (where state = 'dead' and last) as dead,
        min(failure."at") as first_at, max(failure."at") as last_at,
        min(substring({last_line("failure.error")}, 1, {LONGEST})) as example
    from ({FAILURES}) as failures group by 1, 2 order by 1, 3 desc, 2
"""
"""A row for each error of each queue, the most frequent first.

Columns: queue, error, failures (attempts that ended with it), messages (that had it), finished (messages that had it
and were finished later), dead (dead letters whose last error it was), first_at, last_at, example (the last line of one
of them).
"""
