-- Procedures of maintenance, which others call.

-- name: move_on
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

-- name: promote
-- {queue}_promote: promote the next message of up to p_n groups that have no head. Returns the number of groups. For
-- the other procedures.
-- It runs in the transaction of their caller, which keeps the new heads locked until it commits: keep transactions
-- around pop and take short.
{create} procedure {queue}_promote(p_n bigint, p_now datetime(6), out p_promoted bigint)
begin
    declare found, notes, chosen, next_ones, closed_ones, passed longtext character set ascii;
    set p_promoted = 0;
    select json_arrayagg(id) into found from (
        {sql promote.find}
    ) as noted;
    if found is not null then
        select json_arrayagg(id) into notes from (
            {sql promote.lock ids=found}
        ) as noted;
    end if;
    if notes is not null then
        with lowest (id) as (
            {sql promote.choose ids=notes}
            limit 1000 -- which keeps MariaDB from merging it with what is around it: the second call would fail
        )
        select json_arrayagg(id) into chosen from lowest;
        if chosen is not null then
            {sql promote.reserve ids=chosen};
            select
                concat('[', group_concat(case when head = id and not closed then id end), ']'),
                concat('[', group_concat(case when head = id and closed then id end), ']'),
                concat('[', group_concat(case when head is null then id end), ']')
            into next_ones, closed_ones, passed
            from (
                {sql promote.reserved ids=chosen}
            ) as place;
            {sql promote.advance ids=next_ones};
            set p_promoted = row_count();
            if closed_ones is not null then
                {sql promote.give_back ids=closed_ones};
            end if;
            if passed is not null then
                {sql promote.note_again ids=passed};
            end if;
        end if;
        {sql promote.forget ids=notes};
    end if;
end //

-- name: sweep
-- {queue}_sweep: make messages ready that are due or abandoned. p_moved is their number, or null if the last sweep of
-- this session was less than p_every seconds ago. For {queue}_find.
-- In a caller's transaction, no other consumer can claim these messages until the commit. So there p_n limits them, for
-- each kind. The session remembers the time of its last sweep in the variable @`tablequeue.{table}`.
{create} procedure {queue}_sweep(p_every bigint, p_n bigint, p_now datetime(6), out p_moved bigint)
sweep: begin
    declare clock bigint default timestampdiff(microsecond, '2000-01-01', utc_timestamp(6));
    declare promoted bigint;
    declare found, locked longtext character set ascii;
    -- [at_least_once]
    declare ended longtext character set ascii;
    -- [end]
    set p_moved = null;
    if p_now is null and clock < @`tablequeue.{table}` + 1000000 * p_every then
        leave sweep;
    end if;
    set @`tablequeue.{table}` = clock, p_moved = 0;
    select json_arrayagg(id) into found from (
        {sql sweep.find}
    ) as due;
    if found is not null then
        select json_arrayagg(id), count(*) into locked, p_moved from (
            {sql sweep.lock ids=found}
        ) as due;
    end if;
    if locked is not null then
        {sql sweep.change ids=locked max_attempts=max_attempts};
        -- [at_least_once]
        call {queue}_cancel_held(locked, null, 'lease expired', p_now, ended);
        -- [dead_letter_to]
        {sql move_dead ids=locked origin=origin};
        -- [end]
    end if;
    -- [expires]
    set locked = null;
    select json_arrayagg(id) into found from (
        {sql expire.find}
    ) as outdated;
    if found is not null then
        select json_arrayagg(id) into locked from (
            {sql expire.lock ids=found}
        ) as outdated;
    end if;
    if locked is not null then
        {sql expire.change ids=locked};
        -- [expires none dead_letter_to]
        {sql move_dead ids=locked origin=origin};
        -- [expires]
        set p_moved = p_moved + json_length(locked);
    end if;
    -- [grouped]
    call {queue}_promote(p_n, p_now, promoted);
    set p_moved = p_moved + promoted;
    -- [retention]
    set locked = null;
    select json_arrayagg(id) into found from (
        {sql purge_history.find n=1000 age=retention}
    ) as outdated;
    if found is not null then
        select json_arrayagg(id) into locked from (
            {sql purge_history.lock ids=found}
        ) as outdated;
    end if;
    if locked is not null then
        {sql purge_history.change ids=locked};
    end if;
    -- [end]
end //
