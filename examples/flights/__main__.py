"""Starts the demo, and handles Ctrl-C during the second that the imports take."""

import os
import signal
import sys


def _interrupted(*_: object) -> None:
    os.write(2, b"\nInterrupted while starting: nothing was done yet. Run it again for a fresh start.\n")
    os._exit(130)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupted)
    from examples.flights.demo import main

    sys.exit(main(sys.argv[1:]))
