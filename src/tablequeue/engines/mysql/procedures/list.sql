-- {queue}_list: refuse a value that is not a JSON array. For the other procedures.
{create} procedure {queue}_list(p_list {text})
begin
    if p_list is null or not json_valid(p_list) or left(ltrim(p_list), 1) <> '[' then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The list is no JSON array. Write it as in [1, 2].';
    end if;
end //
