"""Its model, as far as tests of behaviour use it: what it counts, stores and changes, done by the verbs of queues."""

from types import SimpleNamespace

from asgiref.sync import sync_to_async

from tablequeue.contrib.django import results
from tablequeue.contrib.django.backend import backends
from tablequeue.contrib.django.compat import TaskResultStatus

STATES = ("ready", "scheduled", "in_progress", "dead")


def get_date_max():
    return None


class DBTaskResult:
    """One message of a queue."""

    def __init__(self, backend, queue_name, message):
        self.backend, self.queue_name = backend, queue_name
        self.queue = backend.queue(queue_name)
        self._read(message)

    def _read(self, message):
        self.message = message
        self.id = results.id_of(self.queue_name, message.id, results.token_of(message))
        self.task_path = message.payload["task"]
        self.status = results.STATUSES[message.state]
        self.worker_ids = [error.consumer for error in message.errors]
        self.traceback = message.errors[-1].error if message.errors else ""
        if message.state in ("in_progress", "finished"):
            self.worker_ids.append(message.consumer)

    def refresh_from_db(self):
        self._read(self.queue.find(self.message.id))

    @property
    def task(self):
        return results.task_of(self.backend.alias, self.queue_name, self.message)


class Rows:
    """The messages that a query returns. It asks when it is used."""

    def __init__(self, wanted=lambda row: True):
        self.wanted = wanted

    def __iter__(self):
        for backend in backends():
            for name in sorted(backend.queues):
                queue = backend.queue(name)
                live = [message for state in STATES for message in queue.peek(10_000, state=state)]
                rows = (DBTaskResult(backend, name, message) for message in [*live, *queue.history(10_000)])
                yield from filter(self.wanted, rows)

    def count(self):
        return len([*self])

    def update(self, *, run_after=None, status=None, return_value=None, worker_ids=(), **times):
        for row in [*self]:
            if run_after is not None:
                row.queue.reschedule(row.message.id, due=run_after)
            if status == TaskResultStatus.SUCCESSFUL:
                claim = row.queue.pop()
                assert claim.id == row.message.id
                claim.complete(result=return_value)

    async def aupdate(self, **values):
        await sync_to_async(self.update)(**values)


class Objects:
    def all(self):
        return Rows()

    def filter(self, id):
        return Rows(lambda row: row.id == id)

    def get(self, id):
        (row,) = self.filter(id)
        return row

    def count(self):
        return self.all().count()

    def values(self, column):
        return SimpleNamespace(query="select id from tq_default_default")

    def ready(self):
        return Rows(lambda row: row.message.state == "ready")

    def successful(self):
        return Rows(lambda row: row.status == TaskResultStatus.SUCCESSFUL)

    def failed(self):
        return Rows(lambda row: row.status == TaskResultStatus.FAILED)

    def create(self, *, args_kwargs, task_path, backend_name):
        (backend,) = (backend for backend in backends() if backend.alias == backend_name)
        queue = backend.queue("default")
        id = queue.push({"task": task_path, **args_kwargs})
        return DBTaskResult(backend, "default", queue.find(id))


DBTaskResult.objects = Objects()
