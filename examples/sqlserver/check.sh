#!/usr/bin/env bash
# Look at the locks, plans, escalations and deadlocks of a queue on a test server; see README.md.
set -euo pipefail
cd "$(dirname "$0")"
golden=../../tests/golden/mssql/fifo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
consumers=${CONSUMERS:-8}

# -I: filtered indexes need QUOTED_IDENTIFIER, which sqlcmd switches off. -b: an error ends sqlcmd with 1.
run() { sqlcmd -C -I -b -y 0 -d "$@"; }
batches() { for text in "$@"; do cat "$text"; printf '\ngo\n'; done; }
check() {
    local said=FAILED
    "${@:2}" && said=passed
    echo "$said: $1" | tee -a "$work/report"
}
plan() { printf 'set showplan_xml on;\ngo\n%s\n' "$1"; batches "$2"; }
has() { grep --quiet --fixed-strings "$1" "$2"; }
has_not() { ! has "$@"; }

run master -Q "if db_id('tablequeue_check') is not null drop database tablequeue_check; create database tablequeue_check;"
printf 'set xact_abort on;\nbegin transaction;\ngo\n' >"$work/begin.sql"
echo 'commit transaction;' >"$work/commit.sql"
batches "$work/begin.sql" "$golden/create.sql" "$work/commit.sql" "$golden/procedures.sql" >"$work/create.sql"
run tablequeue_check -i "$work/create.sql"
run tablequeue_check -i push.sql

plan "declare @p_n bigint = 10, @p_token uniqueidentifier = newid(), @p_consumer nvarchar(512) = N'plan',
    @p_lease float = 60, @p_now datetime2(6) = null;" "$golden/pop.sql" >"$work/pop.sql"
run tablequeue_check -i "$work/pop.sql" >"$work/pop.xml"
check 'a pop reads the ready index' has 'Index="[tq_emails__ready]"' "$work/pop.xml"
check 'a pop reads it in its order' has 'Ordered="true"' "$work/pop.xml"
check 'a pop does not sort' has_not 'PhysicalOp="Sort"' "$work/pop.xml"
plan "declare @p_ids nvarchar(max) = N'[1]', @p_token uniqueidentifier = newid(), @p_now datetime2(6) = null;" \
    "$golden/complete.sql" >"$work/complete.sql"
run tablequeue_check -i "$work/complete.sql" >"$work/complete.xml"
check 'a completion seeks' has 'PhysicalOp="Clustered Index Seek"' "$work/complete.xml"
check 'a completion does not scan' has_not 'PhysicalOp="Clustered Index Scan"' "$work/complete.xml"

run tablequeue_check -i take.sql &
run tablequeue_check -i locks.sql | tee -a "$work/report"
wait
# The messages that locks.sql has popped come back.
run tablequeue_check -Q 'update tq_emails set lease_until = sysutcdatetime() where lease_until is not null;'

pids=()
for ((number = 0; number < consumers; number++)); do
    run tablequeue_check -i consume.sql &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    check 'a consumer ends without an error' wait "$pid"
done
run tablequeue_check -i counters.sql | tee -a "$work/report"

failed=$(grep --count FAILED "$work/report" || true)
echo "$(grep --count passed "$work/report" || true) passed, $failed failed"
[ "$failed" = 0 ]
