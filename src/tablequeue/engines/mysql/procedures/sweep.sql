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
        {sql sweep/1}
    ) as due;
    if found is not null then
        select json_arrayagg(id), count(*) into locked, p_moved from (
            {sql sweep/2 ids=found}
        ) as due;
    end if;
    if locked is not null then
        {sql sweep/3 ids=locked max_attempts=max_attempts};
        {sql sweep/4 ids=locked};
        -- [at_least_once]
        call {queue}_cancel_held(locked, null, 'lease expired', p_now, ended);
        -- [end]
        -- [dead_letter_to]
        {sql move_dead/1 ids=locked origin=origin};
        {sql move_dead/2 ids=locked};
        -- [end]
    end if;
    -- [expires]
    set locked = null;
    select json_arrayagg(id) into found from (
        {sql expire_keep/1}
    ) as outdated;
    if found is not null then
        select json_arrayagg(id) into locked from (
            {sql expire_keep/2 ids=found}
        ) as outdated;
    end if;
    if locked is not null then
        -- [end]
        -- [expires keep]
        {sql expire_keep/3 ids=locked};
        {sql expire_keep/4 ids=locked};
        -- [end]
        -- [expires none]
        {sql expire_none/3 ids=locked};
        -- [end]
        -- [expires none dead_letter_to]
        {sql move_dead/1 ids=locked origin=origin};
        {sql move_dead/2 ids=locked};
        -- [end]
        -- [expires]
        set p_moved = p_moved + json_length(locked);
    end if;
    -- [end]
    -- [grouped]
    call {queue}_promote(p_n, p_now, promoted);
    set p_moved = p_moved + promoted;
    -- [end]
    -- [retention]
    set locked = null;
    select json_arrayagg(id) into found from (
        {sql purge_history/1 n=1000 age=retention}
    ) as outdated;
    if found is not null then
        select json_arrayagg(id) into locked from (
            {sql purge_history/2 ids=found}
        ) as outdated;
    end if;
    if locked is not null then
        {sql purge_history/3 ids=locked};
    end if;
    -- [end]
end //
