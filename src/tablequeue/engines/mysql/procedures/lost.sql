-- {queue}_lost: the first messages that were claimed at most once, some time ago, and not acknowledged; for observers.
-- Options: n (else 10), age (seconds, else {lease}), now.
-- Locks: none.
{create} procedure {queue}_lost(p_options {text})
    sql security definer
begin
    declare p_n bigint;
    declare p_age double;
    declare p_now datetime(6);
    call {queue}_options(p_options, '["n", "age", "now"]');
    select coalesce(n, 10), coalesce(age, {lease}), if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_n, p_age, p_now
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        age double path '$.age',
        clock json path '$.now'
    )) as options;
    {sql lost};
end //
