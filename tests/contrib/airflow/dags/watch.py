"""The DAGs of tests/contrib/airflow/real.py, which Airflow reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import DAG, Asset, AssetWatcher, BaseOperator, task

from tablequeue.contrib.airflow.hook import Hook
from tablequeue.contrib.airflow.operator import PushOperator
from tablequeue.contrib.airflow.sensor import Sensor
from tablequeue.contrib.airflow.trigger import Trigger


def watcher(queue_name: str) -> AssetWatcher:
    return AssetWatcher("tablequeue", trigger=MessageQueueTrigger(scheme="tablequeue", queue_name=queue_name))


orders = Asset("orders", watchers=[watcher("orders")])
missing = Asset("missing", watchers=[watcher("missing")])  # a queue that is made later
both = [Asset(name, watchers=[watcher("shared")]) for name in ("left", "right")]

with DAG("both", schedule=both):
    task(lambda: None, task_id="nothing")()

with DAG("watch", schedule=orders | missing, max_active_runs=1):

    @task(retries=3, retry_delay=timedelta(seconds=1))
    def see(triggering_asset_events: Any = None) -> None:
        """Push the ids of the messages of the events to the queue `seen`."""
        events = [event.extra["payload"] for found in triggering_asset_events.values() for event in found]
        with Hook().database() as database:
            database.queue("seen").push_many([event["queue"], event["id"]] for event in events)

    see()


class Deferring(BaseOperator):
    """A task that is deferred with the trigger of asset watchers, which refuses."""

    def execute(self, context: Any) -> None:
        self.defer(trigger=Trigger("refused"), method_name="execute")


with DAG("refused", schedule=None):
    Deferring(task_id="wait")

for kind, deferrable in (("poking", False), ("deferred", True)):
    with DAG(f"chain_{kind}", schedule=None):

        @task
        def work(name: str) -> Any:
            """Pop the message that the sensor has seen, and complete it at the end."""
            with Hook().database() as database, database.queue(name).receive() as message:
                database.queue("worked").push({"by": name, "payload": message.payload})

        (
            Sensor(task_id="wait", queue_name=kind, deferrable=deferrable, poke_interval=1, timeout=120)
            >> work(kind)
            >> PushOperator(
                task_id="tell", queue_name="told", payload={"run": "{{ run_id }}", "of": kind}, key="{{ run_id }}"
            )
        )
