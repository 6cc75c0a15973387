-- Copy the messages of the JSON array :rows, of the history of another database, into this one, under
-- new ids.
-- In one transaction with note_moved: a crash leaves both, or none.
declare @rows nvarchar(max) = cast(:rows as nvarchar(max));
insert into {history} (
    {history_row without token}, outcome
)
select
    {history_row without token with payload = {payload_of_row}}, outcome
from openjson(@rows) with (
    id bigint '$.id',
    attempts int '$.attempts',
    priority int '$.priority',
    pushed_at datetime2(6) '$.pushed_at',
    due_at datetime2(6) '$.due',
    first_popped_at datetime2(6) '$.first_popped_at',
    popped_at datetime2(6) '$.popped_at',
    finished_at datetime2(6) '$.finished_at',
    outcome varchar(9) '$.outcome',
    group_key nvarchar(510) '$.group',
    dedup_key nvarchar(510) '$.key',
    producer nvarchar(512) '$.producer',
    consumer nvarchar(512) '$.consumer',
    headers nvarchar(max) '$.headers',
    errors nvarchar(max) '$.errors',
    payload nvarchar(max) '$.payload'
) as given;
