-- Take a queue out of the catalogue, in the transaction that drops its tables.
delete from {catalogue} where name = cast(:name as nvarchar(255));
