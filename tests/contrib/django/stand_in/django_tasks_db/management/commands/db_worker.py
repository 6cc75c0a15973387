"""The worker by the options of django-tasks-db."""

from tablequeue.contrib.django.management.commands import tablequeue_worker


class Command(tablequeue_worker.Command):
    def add_arguments(self, parser):
        parser.add_argument("--queue-name", default="default")
        parser.add_argument("--exclude-queues", default="")
        parser.add_argument("--interval")
        parser.add_argument("--batch", action="store_true")
        parser.add_argument("--reload", action="store_true", default=False)
        parser.add_argument("--backend", dest="backend_name", default="default", type=tablequeue_worker._backend)
        parser.add_argument("--no-startup-delay", action="store_false", dest="startup_delay")
        parser.add_argument("--worker-id")

    def handle(self, *, queue_name, exclude_queues, batch, reload, backend_name, worker_id, verbosity, **options):
        backend = tablequeue_worker._backend(backend_name) if isinstance(backend_name, str) else backend_name
        names = sorted(backend.queues) if queue_name == "*" else queue_name.split(",")
        super().handle(
            backend=backend,
            queue=[name for name in names if name not in exclude_queues.split(",")],
            max=1,
            processes=False,
            drain=batch,
            shutdown_timeout=30,
            worker_id=worker_id,
            reload=reload,
            verbosity=verbosity,
        )
