-- How many messages of the history expired, of the last 100,000. Index: {table}__expired. Locks: none.
select count(*) from (
    select 1 from {history} force index ({table}__expired) where outcome = 'expired' limit 100000
) as few;
