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
