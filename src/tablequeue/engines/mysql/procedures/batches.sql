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

-- name: callback
-- {queue}_callback: p_push is a callback as a batch keeps it, from an object with the name of a queue and a payload;
-- null from null. p_what says which one it is, in refusals. For {queue}_push_batch.
{create} procedure {queue}_callback(p_what {text}, p_given {text}, out p_push {text})
callback: begin
    declare whose, entry, target, content, kind {text};
    declare refusal varchar(128) character set utf8mb4;
    {not_base64}
    if p_given is null or json_type(p_given) = 'NULL' then
        set p_push = null;
        leave callback;
    end if;
    set content = json_extract(p_given, '$.payload'),
        whose = if(
            json_type(json_extract(p_given, '$.queue')) = 'STRING', json_unquote(json_extract(p_given, '$.queue')), null
        );
    select max(definition), max({table_of_entry}) into entry, target from {catalogue} where name = whose;
    set kind = json_unquote(json_extract(entry, '$.payload'));
    set refusal = case
        when whose is null or content is null then
            concat(p_what, ' is no object with the name of a queue, and a payload. Give both.')
        when entry is null or json_contains_path(entry, 'one', '$.keep', '$.topic') then
            concat('There is no queue ', left(whose, 40), '. Give the name of a queue.')
        when json_unquote(json_extract(entry, '$.groups')) = 'true' then
            concat(p_what, ' names ', left(whose, 40), ', which has groups. Name a queue without groups.')
        when kind <> 'json' and json_type(content) <> 'STRING' then
            concat('The payload of ', p_what, ' is no string. Give one; for a queue of bytes in base64.')
        when kind = 'bytes' and from_base64(json_unquote(content)) is null then
            concat('The payload of ', p_what, ' is not in base64. Give it so.')
    end;
    if refusal is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
    set content = if(kind = 'json', content, json_unquote(content));
    set p_push = json_object('table', target, 'payload', content);
end //

-- name: progress
-- {queue}_progress: the progress of the batch p_id, for {queue}_batch, {queue}_cancel_batch and {queue}_settle.
{create} procedure {queue}_progress(
    p_id bigint, out p_waiting bigint, out p_in_progress bigint, out p_finished bigint, out p_dead bigint,
    out p_cancelled bigint, out p_opened_at datetime(6), out p_failed_at datetime(6), out p_ended_at datetime(6)
)
begin
    declare added, gone, died, total bigint;
    declare refusal varchar(128) character set utf8mb4;
    if not exists (select 1 from {batches} where id = p_id and queue = '{table}') then
        set refusal = concat(
            'There is no batch ', coalesce(p_id, 'null'), '. Give that of one that is open, or ended a short time ago.'
        );
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
    {sql batch_progress}
    into p_opened_at, p_failed_at, p_ended_at, total, p_cancelled, p_dead, added, gone, p_waiting, p_in_progress, died;
    if p_ended_at is null then
        set p_dead = died, total = total + added, p_cancelled = p_cancelled + gone;
    else
        set p_waiting = 0, p_in_progress = 0;
    end if;
    set p_finished = total - p_waiting - p_in_progress - p_dead - p_cancelled;
end //

-- name: settle
-- {queue}_settle: push what the batch p_id has to push by now, and end it if nothing of it is left. p_done tells
-- whether it has pushed or ended. For {queue}_end_batches. Locks: the batch, until the transaction ends; another
-- transaction passes over it.
{create} procedure {queue}_settle(p_id bigint, p_now datetime(6), out p_done boolean)
settle: begin
    declare then_pushes, failed_pushes, numbers {text};
    declare one, p_pushed, p_cancelled, p_dead, finished, waiting, held bigint;
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
    call {queue}_progress(p_id, waiting, held, finished, p_dead, p_cancelled, opened, failed, ended);
    set p_pushed = waiting + held + finished + p_dead + p_cancelled;
    set numbers = json_object(
        'total', p_pushed + 0, 'finished', finished + 0, 'dead', p_dead + 0, 'cancelled', p_cancelled + 0
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

-- name: cancel_all
-- {queue}_cancel_all: cancel the messages of the batch p_id, and its dead letters too if p_dead is 1. For
-- {queue}_cancel_batch and {queue}_end_batches. p_cancelled is how many were cancelled or told to stop. Locks: the
-- messages.
{create} procedure {queue}_cancel_all(p_id bigint, p_dead bigint, p_now datetime(6), out p_cancelled bigint)
begin
    declare members, there longtext character set ascii;
    set p_cancelled = 0;
    repeat
        select json_arrayagg(id) into members from (
            {sql uncancelled n=1000}
        ) as message;
        if members is not null then
            select json_arrayagg(id) into there from (
                {sql cancel.lock ids=members}
            ) as message;
            set p_cancelled = p_cancelled + coalesce(json_length(there), 0);
            {sql cancel.change ids=coalesce(there,'[]')};
        end if;
    -- Under REPEATABLE READ the look may show messages that others have finished since.
    until members is null or there is null end repeat;
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
    declare cancelled bigint;
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
            if cancels and has_dead then
                call {queue}_cancel_all(one, 0, p_now, cancelled);
            end if;
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

-- name: push_batch
-- {queue}_push_batch: push a JSON array of messages as a batch, for producers. Returns the id of the batch. A message
-- is an object as in {queue}_push_each.
-- Options: then, the callback that is pushed when all of them are finished, and failed, the one that is pushed when one
-- becomes a dead letter: objects with the name of a queue, and a payload; on_dead, what a dead letter does to the
-- batch: 'wait' (else), 'continue' or 'cancel'; producer (else the login), now.
-- Locks: as {queue}_push_each. All of them are pushed, or none.
{create} procedure {queue}_push_batch(p_messages {text}, p_options {text})
    sql security definer
begin
    declare ours, settled boolean;
    declare opened, p_pushed bigint;
    declare p_then_push, p_failed_push, p_on_dead, p_producer {text};
    declare p_now datetime(6);
    declare members longtext character set ascii;
    {all_or_nothing}
    call {queue}_list(p_messages);
    call {queue}_options(p_options, '["then", "failed", "on_dead", "producer", "now"]');
    select
        if(json_type(on_dead) = 'STRING', json_unquote(on_dead), 'wait'),
        if(json_type(producer) = 'STRING', json_unquote(producer), user()),
        if(json_type(clock) = 'STRING', json_unquote(clock), null)
    into p_on_dead, p_producer, p_now
    from json_table(p_options, '$' columns (
        on_dead json path '$.on_dead', producer json path '$.producer', clock json path '$.now'
    )) as options;
    if p_on_dead not in ('wait', 'continue', 'cancel') then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'on_dead is not known. Give wait, continue or cancel.';
    end if;
    call {queue}_callback('then', json_extract(p_options, '$.then'), p_then_push);
    call {queue}_callback('failed', json_extract(p_options, '$.failed'), p_failed_push);
    set p_pushed = json_length(p_messages);
    {sql open_batch};
    set opened = last_insert_id();
    call {queue}_push_all(p_messages, 'raise', p_producer, p_now, members);
    update json_table(members, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id
    set batch_id = opened;
    if p_pushed = 0 then
        call {queue}_settle(opened, p_now, settled);
    end if;
    if ours then
        commit;
    end if;
    select opened as id;
end //

-- name: cancel_batch
-- {queue}_cancel_batch: cancel the messages of the batch p_id, and its dead letters, for producers. Returns how many
-- were cancelled, or told to stop. The batch ends when the last one is finished, and pushes its callback then.
-- Options: now.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
{create} procedure {queue}_cancel_batch(p_id bigint, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_now, opened, failed, ended datetime(6);
    declare waiting, held, finished, dead, gone, cancelled bigint;
    {all_or_nothing}
    call {queue}_options(p_options, '["now"]');
    select if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_now
    from json_table(p_options, '$' columns (clock json path '$.now')) as options;
    -- An error, if there is no such batch.
    call {queue}_progress(p_id, waiting, held, finished, dead, gone, opened, failed, ended);
    call {queue}_cancel_all(p_id, 1, p_now, cancelled);
    if ours then
        commit;
        -- [grouped]
        call {queue}_move_on(p_now);
        -- [end]
        call {queue}_look_after(json_array(p_id + 0), p_now);
    end if;
    select cancelled;
end //

-- name: batch
-- {queue}_batch: the progress of the batch p_id, for observers: how many of its messages wait, are in progress, were
-- finished, are dead letters, or left without being completed; when it was opened, has failed, and has ended.
-- Options: none. Locks: none.
{create} procedure {queue}_batch(p_id bigint, p_options {text})
    sql security definer
begin
    declare waiting, in_progress, finished, dead, cancelled bigint;
    declare opened_at, failed_at, ended_at datetime(6);
    call {queue}_options(p_options, '[]');
    call {queue}_progress(
        p_id, waiting, in_progress, finished, dead, cancelled, opened_at, failed_at, ended_at
    );
    select waiting, in_progress, finished, dead, cancelled, opened_at, failed_at, ended_at;
end //
