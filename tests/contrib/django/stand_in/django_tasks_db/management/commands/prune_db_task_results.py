import logging

logger = logging.getLogger("django_tasks_db.prune")
