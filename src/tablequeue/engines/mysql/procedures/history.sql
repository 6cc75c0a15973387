-- {queue}_history: the last finished messages, highest id first; for observers.
-- Options: n (else 10), low and high (only ids between them).
-- Locks: none.
{create} procedure {queue}_history(p_options {text})
    sql security definer
begin
    declare p_n, p_low, p_high bigint;
    call {queue}_options(p_options, '["n", "low", "high"]');
    select coalesce(n, 10), coalesce(low, 0), coalesce(high, 9223372036854775807) into p_n, p_low, p_high
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        low bigint path '$.low',
        high bigint path '$.high'
    )) as options;
    {sql history};
end //
