class DBTaskResultAdmin:
    """Never used: tests of it are excused."""

    def __init__(self, *arguments):
        pass
