-- Copy messages of the history of another database into this one, under new ids.
-- In one transaction with note_moved: a crash leaves both, or none.
insert into {history} (
    {history_row without token}, outcome
)
values (
    {history_values without token}, :outcome
);
