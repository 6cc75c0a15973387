-- {queue}_move_on: promote after {queue}_complete or {queue}_fail has committed. Errors are ignored here, or the caller
-- would repeat a call that has succeeded. The next pop that finds too few messages promotes.
{create} procedure {queue}_move_on(p_now datetime(6))
begin
    declare ours boolean;
    declare promoted bigint;
    declare exit handler for sqlexception rollback;
    call {queue}_begin(ours);
    call {queue}_promote(1000, p_now, promoted);
    commit;
end //
