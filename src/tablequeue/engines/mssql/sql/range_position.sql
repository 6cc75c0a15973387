-- The offset at which the next claim of a subscription begins. Index: {table}__last. Locks: none that lasts.
select top (1) last_offset + 1 as position
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
