-- Note the messages of the JSON array :rows that came from another database: the id that each had, its token,
-- and its id here. If two moves bring the same one at once, the primary key refuses the second.
-- In one transaction with move: a crash leaves both, or none.
declare @rows nvarchar(max) = cast(:rows as nvarchar(max));
insert into {moved} (id, token, new_id)
select given.id, given.token, given.new_id
from openjson(@rows) with (
    id bigint '$.id',
    token char(32) '$.token',
    new_id bigint '$.new_id'
) as given;
