-- The file of the database; its WAL lies beside it. Locks: none.
select file from pragma_database_list where name = 'main';
