-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers.
-- Options: now. Locks: none.
{create} procedure {queue}_stats(p_options {text})
    sql security definer
begin
    declare p_now datetime(6);
    call {queue}_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    with live (ready, scheduled, in_progress, dead, blocked, oldest_age) as (
        {sql stats}
    ), ended (finished) as (
        -- [keep]
        {sql stats_history}
        -- [end]
        -- [none]
        select cast(null as signed)
        -- [end]
    )
    select * from live cross join ended;
end //
