"""Everything at once, at random: `python -m tests.stress --minutes 10 --engine sqlite|postgresql|mariadb [--seed N]`.

Rounds of some seconds follow one another. A seed draws the mix of a round: its queues, its kinds of action, its
clients. Clients push, pop and finish, in threads and in tasks of asyncio, in their own transactions and out of them;
they fork, and their tasks are cancelled. Some are killed or stopped in the middle of it, and so is the server.
Consumers that nothing befalls empty the queues all the time. At the end of a round everything must be finished or a
dead letter.

Each process writes a ledger, a line before each operation and one after it. From the ledgers, and from what is in the
tables at the end, the checks tell whether every promise was kept:

- every acknowledged push is in one place, and whole; no push that was refused or rolled back is in any;
- nobody holds what another one holds, nothing is finished twice, nothing that is finished comes back, and who lost a
  lease finishes nothing; every claim counts as an attempt, and nobody claims unnoticed;
- of a group, and of a strict queue, one message is in progress at a time, and nothing overtakes what was there before;
- keys are unique among live messages; nothing is delivered before its time;
- what is ready is delivered within 2 s (`--late`) while somebody asks;
- every refusal is a TablequeueError, nobody hangs, and the database finds no fault with its own files.

What an operation did that nobody was told of (its client was killed, or the connection broke) is unknown, and all that
it may have done is allowed. When the machine stood still, nothing is late.

A failure is shown by the operations that concern it, in the order of time. The round is then played again with fewer
kinds of action, to find a shorter one. `--only` and `--without` choose kinds of action, `--queues` the designs.
The exit code is 1 if anything was found. Rounds of the same seed do the same, but not at the same moments: what was
found once may take some rounds to be found again.

| file | what is in it |
|---|---|
| mix | a round, drawn from a seed |
| ledger | what clients note, and its reading |
| client, actions, cancels, forks | what clients do |
| roles, board | the processes of a round, and the few bytes that they share |
| ground, proxy | where a round takes place: a file or a schema of a private server, and a long way to it |
| run | a round from its beginning to its verdict |
| story | the ledgers put together by message: what was, what was not, what may have been |
| checks, attempts, order, lateness | what must hold in every story |
| history | a failure, as short as it can be found |
"""
