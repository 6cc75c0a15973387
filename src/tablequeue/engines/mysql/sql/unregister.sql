-- Take a queue out of the catalogue, before its tables are dropped.
delete from {catalogue} where name = :name;
