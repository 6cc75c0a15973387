-- What other procedures call, and rights and drops.

-- name: begin
-- {queue}_begin: begin a READ COMMITTED transaction, if the caller has none; the calling procedure commits it (p_ours).
-- Else set a savepoint in the caller's transaction. For the other procedures.
-- Error 1568 tells that a transaction is open, because then the isolation level of the next one cannot be set. Only
-- MariaDB has a variable for that.
-- With autocommit off the caller ends the transaction, even one that begins here.
-- MariaDB truncates the result of JSON_ARRAYAGG to group_concat_max_len bytes, even within an id. So this is raised.
{create} procedure {queue}_begin(out p_ours boolean)
begin
    declare continue handler for 1568 set p_ours = false;
    set session group_concat_max_len = greatest(@@group_concat_max_len, 1073741824);
    set p_ours = @@autocommit;
    if p_ours then
        set transaction isolation level read committed;
    end if;
    if p_ours then
        start transaction;
    else
        savepoint tablequeue;
    end if;
end //

-- name: options
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
        select max(concat('The option ', name, ' is no ', wanted, '. Give one, or leave it out.')) into refusal
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

-- name: undo
-- {queue}_undo: after an error, roll back what {queue}_begin began. For the other procedures.
{create} procedure {queue}_undo(p_ours boolean)
begin
    -- The savepoint does not exist if a deadlock has rolled back all of the caller's transaction.
    declare continue handler for 1305 begin end;
    if p_ours then
        rollback;
    else
        rollback to savepoint tablequeue;
    end if;
end //

-- name: before_all
-- A procedure keeps the SQL mode of its creation. In strict mode a value that does not fit is an error.
set session sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';
delimiter //

-- name: after_all
delimiter ;

-- name: drop
drop procedure if exists {queue}_{verb};

-- name: grant
grant execute on procedure {queue}_{verb} to {role};
