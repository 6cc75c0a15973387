-- Procedures that end batches.

-- name: call_back
-- {queue}_call_back: push the callback p_pushes of the batch p_id, with its numbers in a header. For {queue}_settle.
-- p_done is false if the queue of the callback was dropped. Which columns that queue has, its definition tells.
-- A prepared statement takes session variables only: @`tablequeue.payload` and others. MariaDB writes a variable of a
-- procedure as a JSON string, but the sum of it and 0 as a number.
{create} procedure {queue}_call_back(
    p_pushes {text}, p_id bigint, p_numbers {text}, p_now datetime(6), out p_done boolean
)
begin
    declare target, entry, origin {text};
    set p_done = p_pushes is null, target = json_unquote(json_extract(p_pushes, '$.table'));
    select max(case when {table_of_entry} = target then definition end),
        max(case when {table_of_entry} = '{table}' then name end)
    into entry, origin
    from {catalogue};
    if entry is not null then
        set @`tablequeue.payload` = json_unquote(json_extract(p_pushes, '$.payload')),
            @`tablequeue.headers` = json_merge_patch(
                coalesce(json_extract(p_pushes, '$.headers'), '{}'),
                json_object(
                    'tablequeue-batch', json_merge_patch(json_object('id', p_id + 0, 'queue', origin), p_numbers)
                )
            ),
            @`tablequeue.producer` = user(),
            @`tablequeue.now` = {now},
            @`tablequeue.push` = concat(
                'insert into {prefix}', target,
                ' (payload, headers, producer, pushed_at, due_at, group_key, state',
                if(json_extract(entry, '$.expires') is null, '', ', expires_at'),
                ') values (',
                if(json_unquote(json_extract(entry, '$.payload')) = 'bytes', 'from_base64(?)', '?'),
                ', ?, ?, ?, ',
                if(json_unquote(json_extract(entry, '$.order')) = 'due', 'pushed_at', 'null'),
                if(json_unquote(json_extract(entry, '$.strict')) = 'true', ', \'\', \'blocked\'', ', null, \'ready\''),
                coalesce(concat(', pushed_at + interval ', json_extract(entry, '$.expires'), ' second'), ''),
                ')'
            );
        prepare tablequeue_push from @`tablequeue.push`;
        execute tablequeue_push
        using @`tablequeue.payload`, @`tablequeue.headers`, @`tablequeue.producer`, @`tablequeue.now`;
        deallocate prepare tablequeue_push;
        set @`tablequeue.payload` = null, @`tablequeue.headers` = null, p_done = true;
    end if;
end //

-- name: settle
-- {queue}_settle: push what the batch p_id has to push by now, and end it if nothing of it is left. p_done tells
-- whether it has pushed or ended. For {queue}_end_batches. Locks: the batch, until the transaction ends; another
-- transaction passes over it.
{create} procedure {queue}_settle(p_id bigint, p_now datetime(6), out p_done boolean)
settle: begin
    declare then_pushes, failed_pushes, numbers {text};
    declare one, p_pushed, p_cancelled, p_dead, final, more, gone, waiting, held bigint;
    declare does_about_dead varchar(8) character set ascii;
    declare tells, has_live, has_dead, cancels, pushes boolean;
    declare opened, failed, ended datetime(6);
    declare continue handler for not found set one = null;
    set p_done = false, one = p_id;
    {sql lock_batch}
    into then_pushes, failed_pushes;
    if one is null then
        leave settle;
    end if;
    -- After the lock: what was committed before it is seen.
    {sql open_batches after=p_id-1 n=1}
    into one, does_about_dead, tells, has_live, has_dead, cancels;
    {sql batch_progress}
    into opened, failed, ended, p_pushed, p_cancelled, final, more, gone, waiting, held, p_dead;
    set p_pushed = p_pushed + more, p_cancelled = p_cancelled + gone;
    set numbers = json_object(
        'total', p_pushed + 0, 'finished', p_pushed - waiting - held - p_dead - p_cancelled, 'dead', p_dead + 0,
        'cancelled', p_cancelled + 0
    );
    if tells and has_dead then
        call {queue}_call_back(failed_pushes, p_id, numbers, p_now, pushes);
        if pushes then
            {sql note_failed};
            set p_done = true;
        end if;
    end if;
    if not has_live and (does_about_dead <> 'wait' or not has_dead) then
        call {queue}_call_back(then_pushes, p_id, numbers, p_now, pushes);
        if pushes then
            {sql end_batch};
            set p_done = true;
        end if;
    end if;
end //

-- name: end_batches
-- {queue}_end_batches: look at the open batch p_id, or if that is null at the next 100 of them, and do what is due:
-- cancel what a dead letter cancels, push callbacks, end batches of which nothing is left. p_settled is how many have
-- pushed or ended. For the other procedures.
-- Only under READ COMMITTED, where each look sees what was committed before it: else a batch could end too early.
-- {queue}_begin notes in @`tablequeue.committed` whether that is so. The session remembers the last batch that it has
-- looked at in the variable @`tablequeue.{table}.batch`.
{create} procedure {queue}_end_batches(p_id bigint, p_now datetime(6), out p_settled bigint)
begin
    declare one, looks, p_n bigint default 0;
    declare p_after bigint default coalesce(p_id - 1, @`tablequeue.{table}.batch`, 0);
    declare does_about_dead varchar(8) character set ascii;
    declare tells, has_live, has_dead, cancels, settled, done boolean default false;
    declare there, found_ids longtext character set ascii;
    declare open_ones cursor for
        {sql open_batches};
    declare continue handler for not found set done = true;
    set p_settled = 0, p_n = if(p_id is null, 100, 1);
    if @`tablequeue.committed` then
        open open_ones;
        batches: loop
            fetch open_ones into one, does_about_dead, tells, has_live, has_dead, cancels;
            if done then
                leave batches;
            end if;
            set looks = looks + 1;
            repeat
                set found_ids = null;
                if cancels and has_dead then
                    select json_arrayagg(id) into found_ids from (
                        {sql uncancelled id=one dead=0 n=1000}
                    ) as message;
                end if;
                if found_ids is not null then
                    select json_arrayagg(id) into there from (
                        {sql cancel.lock ids=found_ids}
                    ) as message;
                    {sql cancel.change ids=coalesce(there,'[]')};
                end if;
            until found_ids is null end repeat;
            if (tells and has_dead) or (cancels and has_dead)
                or (not has_live and (does_about_dead <> 'wait' or not has_dead))
            then
                call {queue}_settle(one, p_now, settled);
                set p_settled = p_settled + settled;
            end if;
        end loop;
        close open_ones;
        if p_id is null then
            set @`tablequeue.{table}.batch` = if(looks = p_n, one, 0);
        end if;
    end if;
end //

-- name: look_after
-- {queue}_look_after: do what {queue}_end_batches does about the batches of the JSON array p_batches, or if that is
-- null about the next 100, after a procedure has committed. Errors are ignored here, or the caller would repeat a call
-- that has succeeded. A later pop does what is left.
{create} procedure {queue}_look_after(p_batches longtext character set ascii, p_now datetime(6))
begin
    declare ours boolean;
    declare settled bigint;
    declare place bigint default 0;
    declare exit handler for sqlexception rollback;
    repeat
        call {queue}_begin(ours);
        call {queue}_end_batches(json_extract(p_batches, concat('$[', place, ']')), p_now, settled);
        commit;
        set place = place + 1;
    until place >= coalesce(json_length(p_batches), 0) end repeat;
end //
