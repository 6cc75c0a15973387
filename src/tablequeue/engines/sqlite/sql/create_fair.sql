-- What a fair queue has in addition: the group that was served last, by the slot of its messages.
create table {ring} (served text not null) strict;
insert into {ring} values ('');
