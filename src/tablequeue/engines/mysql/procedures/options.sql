-- {queue}_options: refuse options that are not a JSON object, not among p_names, or of a wrong type; '{}' has none.
-- For the other procedures: JSON_TABLE would turn a wrong number or a wrong time into zero.
{create} procedure {queue}_options(inout p_options {text}, p_names {text})
begin
    declare refusal varchar(128) character set utf8mb4;
    set p_options = coalesce(p_options, '{}');
    if not json_valid(p_options) or left(ltrim(p_options), 1) <> '{' then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'The options are no JSON object. Give an object, or null for none.';
    end if;
    select concat('There is no option ', left(max(name), 40), '. Leave it out.') into refusal
    from json_table(json_keys(p_options), '$[*]' columns (name {text} path '$')) as given
    where not json_contains(p_names, json_quote(name));
    if refusal is null then
        select concat('The option ', max(name), ' is no ', max(wanted), '. Give one, or leave it out.') into refusal
        from (
            select
                name, json_extract(p_options, concat('$.', name)) as value,
                case
                    when name in ('delay', 'lease', 'retry_in', 'seconds', 'age', 'expires') then 'number'
                    when name in ('n', 'priority', 'after', 'low', 'high') then 'whole number'
                    when name in ('due', 'now') then 'time in UTC, as 2040-12-31 23:59:59'
                    when name = 'headers' then 'object'
                    when name not in ('payload', 'result') then 'string'
                end as wanted
            from json_table(p_names, '$[*]' columns (name {text} path '$')) as known
        ) as known
        where json_type(value) <> 'NULL' and not case wanted
            when 'number' then json_type(value) in ('INTEGER', 'DOUBLE')
            when 'whole number' then json_type(value) = 'INTEGER'
            when 'object' then json_type(value) = 'OBJECT'
            when 'string' then json_type(value) = 'STRING'
            -- Without a time zone: MySQL would convert a time with one to the time zone of the session.
            else json_unquote(value) regexp '^[0-9]+-[0-9]+-[0-9]+[ T][0-9]+:[0-9]+:[0-9]+([.][0-9]+)?$'
        end;
    end if;
    if refusal is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
end //
