-- {queue}_move_on: promotes after {queue}_complete or {queue}_fail has committed. If that is refused, it is no failure
-- of theirs, which the caller would repeat: the next pop that finds too little promotes.
{create} procedure {queue}_move_on(p_now datetime(6))
begin
    declare ours boolean;
    declare promoted bigint;
    declare exit handler for sqlexception rollback;
    call {queue}_begin(ours);
    call {queue}_promote(1000, p_now, promoted);
    commit;
end //
