-- How many messages of the history expired, of the last 100,000. Index: {table}__expired. Locks: none.
select count_big(*) as expired from (
    select top (100000) finished_at from {history} where outcome = 'expired'
) as few;
