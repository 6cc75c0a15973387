-- {queue}_undo: after an error, what {queue}_begin began is as if it had not been. For the other procedures.
{create} procedure {queue}_undo(p_ours boolean)
begin
    -- No such savepoint: a deadlock has rolled the caller's transaction back, all of it.
    declare continue handler for 1305 begin end;
    if p_ours then
        rollback;
    else
        rollback to savepoint tablequeue;
    end if;
end //
