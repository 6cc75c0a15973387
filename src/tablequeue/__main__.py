"""`python -m tablequeue` is the command `tablequeue`."""

from tablequeue.cli import main

main()
