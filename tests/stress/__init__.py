"""Run everything at once and at random.

    python -m tests.stress --minutes 10 --engine sqlite|postgresql|mariadb [--seed N]

A run is a series of rounds of some seconds each, of queues or of topics (`--kind`). A seed draws the mix of a round:
its queues, its kinds of action, its clients. Clients push, pop and finish messages, in threads and in asyncio tasks,
inside and outside of their own transactions. They fork, and their tasks are cancelled. Some of them are killed, stopped
anywhere, or stopped between two statements of a call. The server closes connections that are idle, and is killed too.
Steady consumers, which are never killed, empty the queues all the time. At the end of a round every message must be
finished or a dead letter. The module of the topics says what is different in their rounds.

Each process writes a ledger, with a line before each operation and one after it. From the ledgers, and from the tables
at the end, the checks decide whether every promise was kept:

- every acknowledged message is in exactly one place, and complete; none that was refused or rolled back exists;
- no two consumers hold a message, no message is finished twice or redelivered after its end, a consumer that has lost
  its lease finishes nothing, every claim counts as an attempt, and no claim goes unrecorded;
- in a group, and in a strict queue, one message is in progress at a time, and none overtakes an earlier one;
- keys are unique among live messages, and no message is delivered before its time;
- a ready message is delivered within 2 s (`--late`) while consumers pop;
- every refusal is a TablequeueError, no client hangs, and the database finds no fault in its own files.

If nobody got the result of an operation, because its client was killed or the connection broke, its effect is unknown,
and each possible effect is allowed. While the machine stands still, no message counts as late.

A failure is shown as the operations that concern it, in the order of time. The round is then run again with fewer kinds
of action, to find a shorter failure. `--only` and `--without` select kinds of action, and `--queues` selects designs.
The exit code is 1 if a violation was found. Rounds with the same seed do the same, but not at the same moments, so it
may take some rounds to find a failure again.

| file | contents |
|---|---|
| mix | a round, drawn from a seed |
| ledger | the records of the clients, and their reading |
| client, actions, cancels, forks | the actions of clients |
| roles, board | the processes of a round, and the few bytes that they share |
| ground, proxy | the place of a round: a file, or a schema of a private server, and a slow connection to it |
| run | a round from its beginning to its verdict |
| story | the ledgers combined by message: certain and possible effects |
| checks, attempts, order, lateness | the conditions that every story must meet |
| history | a failure, as short as it can be found |
| topics | a round of topics: seeks and trims, topics that are dropped, created anew and renamed, queues with limits |
| held, limits | what consumers surely held in such a round; its queues with limits, of the whole and of each group |
"""
