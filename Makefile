# tablequeue: `make demo` runs the main job, `make test` all tests; both set up what they need first.

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
# Spark needs Java 17 or newer: the machine's, or else the one of a Python package.
JAVA_OK := $(shell scripts/has-java 17 && echo yes)
EXTRAS := --extra postgresql --extra mysql --extra mssql --extra spark --extra delta --extra report --extra cron --extra serve --extra otel \
    $(if $(JAVA_OK),,--extra jre)
RUN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup servers clients demo test lint format bench bench-full clean

help:
	@echo "make demo    336,776 real flights through a queue into Spark; the report is demo/report.html"
	@echo "make test    all tests, on SQLite, and on private PostgreSQL and MariaDB servers"
	@echo "make lint    style, types and the walls between the rooms"
	@echo "make bench   beside the bare driver and other queues, some minutes; bench-full: in full, an hour and more"
	@echo "make setup   .venv with everything; the others call it"

setup: .venv/.done

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
	$(RUN)/python -m examples.flights

# One worker a core, each with servers of its own; those who run out of tests take over others' (worksteal).
test: setup servers clients
	$(RUN)/pytest --numprocesses auto --dist worksteal

lint: setup
	$(RUN)/ruff check
	$(RUN)/ruff format --check
	$(RUN)/mypy
	$(RUN)/lint-imports

format: setup
	$(RUN)/ruff check --fix
	$(RUN)/ruff format

# bench-full writes docs/performance.md.
bench bench-full: setup servers
	$(UV) sync --quiet --frozen --inexact --python $(PYTHON) $(EXTRAS) --group bench
	$(RUN)/python -m benchmarks $(if $(filter bench-full,$@),--full)

clean:
	rm -rf .venv .uv demo
