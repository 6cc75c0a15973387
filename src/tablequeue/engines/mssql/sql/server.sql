-- What must be known of the database: its compatibility level (OPENJSON needs 130, which came with SQL Server 2016).
-- Not the server's version: Azure SQL Database calls itself 12 for ever.
select compatibility_level from sys.databases where database_id = db_id();
