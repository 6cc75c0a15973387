-- What a grouped queue has in addition: its messages are pushed as blocked, and one of each group, the head, is not.
-- The unique index holds that promise: one message of a group at most is ready, scheduled or in progress.
-- Which groups promote has to look at is noted in {turns}, in the transaction of the change: those that got a message,
-- and those that may have lost their head. A note too many costs a look; a note too few would stop a group.
-- The statements write the notes themselves (OUTPUT ... INTO, or note), and not triggers: a table with a trigger
-- refuses every OUTPUT without INTO (error 334), so that each claim would have to carry its payload through a table
-- variable; an UPDATE trigger would fire at every claim, to find that nothing is to do; and a bulk copy passes by it.
-- The price: whoever deletes a message by hand, or makes one dead or blocked, notes its group too.
-- {turns} is written to by OUTPUT ... INTO: it may have no trigger, no foreign key and no check.
-- Runs in one transaction: a crash leaves nothing.
create unique index {table}__front on {queue} (group_key) where {head};
create table {turns} (
    id bigint identity (1, 1) not null constraint pk_{table}__turns primary key clustered,
    group_key varbinary(1020) not null
);
alter table {turns} set (lock_escalation = disable);
