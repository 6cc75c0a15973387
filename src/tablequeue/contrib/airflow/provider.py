"""The provider that Airflow's `MessageQueueTrigger(scheme="tablequeue", …)` finds."""

from __future__ import annotations

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from tablequeue.contrib.airflow.trigger import Trigger


class Provider(BaseMessageQueueProvider):
    """Makes triggers of the scheme `tablequeue`."""

    scheme = "tablequeue"

    def trigger_class(self) -> type[Trigger]:
        return Trigger
