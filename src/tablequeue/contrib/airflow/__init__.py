"""A provider for Apache Airflow 3.3: see docs/airflow.md."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow reads at its start: the connection type, and the provider of message queues."""
    here, integration = __name__, "tablequeue"
    return {
        "package-name": "tablequeue",
        "name": "tablequeue",
        "description": "Queues in the database you already have.",
        "integrations": [
            {
                "integration-name": integration,
                "external-doc-url": "https://pypi.org/project/tablequeue/",
                "tags": ["software"],
            }
        ],
        "connection-types": [
            {"connection-type": "tablequeue", "hook-class-name": f"{here}.hook.Hook", "hook-name": "tablequeue"}
        ],
        "queues": [f"{here}.provider.Provider"],
        "hooks": [{"integration-name": integration, "python-modules": [f"{here}.hook"]}],
        "operators": [{"integration-name": integration, "python-modules": [f"{here}.operator"]}],
        "sensors": [{"integration-name": integration, "python-modules": [f"{here}.sensor"]}],
        "triggers": [{"integration-name": integration, "python-modules": [f"{here}.trigger", f"{here}.ready"]}],
    }
