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
