-- What a grouped queue has in addition: its messages are pushed as blocked, and one of each group, the head, is not.
-- The unique index keeps that promise: one message of a group at most is ready, scheduled or in progress. Those of a
-- run are in progress together: in_run is the id of the message if it was claimed in a run, else 0. In an open run it
-- is minus the id: such a message holds up those behind it, and not those before it. So a message becomes the head if
-- no head of its group has an in_run above minus its own id.
-- A change notes in {turns}, in its own transaction, which groups promote must look at: those that got a message, and
-- those that may have lost their head. A superfluous note costs a look; a missing note would stop a group.
-- The statements write the notes themselves (OUTPUT ... INTO, or note). Rejected: triggers. A table with a trigger
-- refuses every OUTPUT without INTO (error 334), so that each claim would have to copy its payload through a table
-- variable. An UPDATE trigger would fire at every claim and find nothing to do. And a bulk copy bypasses triggers.
-- The price: a user that deletes a message by hand, or makes one dead or blocked, must note its group too.
-- {turns} is written to by OUTPUT ... INTO: it may have no trigger, no foreign key and no check.
-- Runs in one transaction: a crash leaves nothing.
create unique index {table}__front on {queue} (group_key, in_run) include (state) where {head};
create table {turns} (
    id bigint identity (1, 1) not null constraint pk_{table}__turns primary key clustered,
    group_key varbinary(1020) not null
);
alter table {turns} set (lock_escalation = disable);
