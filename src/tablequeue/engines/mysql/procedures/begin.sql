-- {queue}_begin: before the work of another procedure: a transaction, READ COMMITTED, if the caller has none, which the
-- other one commits (p_ours); else a savepoint in the caller's. For the other procedures.
-- Who has one open cannot set the isolation of the next (error 1568): MariaDB has a variable for it, MySQL has not.
-- With autocommit off the caller ends the transaction, also one that begins here.
-- MariaDB cuts what JSON_ARRAYAGG makes to group_concat_max_len bytes, in the middle of an id: the session gets more.
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
