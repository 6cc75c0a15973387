-- {queue}_cancel_held: the messages of the JSON array p_ids that are held under p_token, and were told to stop, end. If
-- p_token is null, those whose lease has expired. p_error is kept, if it is not null. p_ended are their ids, or null.
-- For {queue}_fail, {queue}_release and {queue}_sweep.
{create} procedure {queue}_cancel_held(
    p_ids longtext character set ascii, p_token {token}, p_error {text}, p_now datetime(6),
    out p_ended longtext character set ascii
)
begin
    select json_arrayagg(id) into p_ended from (
        select distinct id from (
            {sql cancel_held/1}
        ) as message
    ) as each_one;
    if p_ended is not null then
        {sql cancel_held/2 ids=p_ended};
        {sql cancel_held/3 ids=p_ended};
        -- [keep]
        {sql cancel_held/4 ids=p_ended};
        -- [end]
    end if;
end //
