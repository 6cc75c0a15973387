-- Note the groups in the JSON array :groups for promote, in the transaction that pushed to them or freed them: beside
-- statements whose OUTPUT ... INTO is taken by the history, or would write a note for every message. In
-- the order of the array, as push_many: in that order promote takes them up.
insert into {turns} (group_key)
select convert(varbinary(1020), convert(nvarchar(510), given.value))
from openjson(cast(:groups as nvarchar(max))) as given
order by cast(given.[key] as int);
