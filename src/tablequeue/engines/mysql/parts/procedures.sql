-- What the stored procedures have in common.

-- name: claimed_order
-- The rest of the query that reads claimed messages: their order.
-- [priority]
order by priority desc, id;
-- [fair]
order by row_number() over (partition by slot order by id), slot <= @`tablequeue.{table}.before`, slot;
-- [not priority not fair]
order by {order_by};
-- [end]

-- name: by_group
-- The numbers of claimed messages by group.
select json_arrayagg(json_object('slot', slot, 'number', number)) into p_groups from (
    select message.slot, count(*) as number
    from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id
    group by message.slot
) as spending;

-- name: none_of_others
-- Refuse a claim that has locked messages of others, in a transaction of the caller's: those of `some` before the last
-- one of `p_ids` that are not ready any more. Under REPEATABLE READ the claim finds what was ready at the first read of
-- the transaction. InnoDB gives no lock back but by a rollback.
if not p_ours and {isolation} <> 'READ-COMMITTED' then
    select json_arrayagg(message.id) into passed_over
    from json_table(some, '$[*]' columns (number for ordinality, id bigint path '$')) as message
    where not json_contains(coalesce(p_ids, '[]'), cast(message.id as char)) and (
        coalesce(json_length(p_ids), 0) < p_n or message.number < (
            select max(found.number)
            from json_table(some, '$[*]' columns (number for ordinality, id bigint path '$')) as found
            where json_contains(p_ids, cast(found.id as char))
        )
    );
    select count(*) into others from (
        select {free} as still_ready
        from json_table(passed_over, '$[*]' columns (id bigint path '$')) as given
        straight_join {queue} as message force index (primary) on message.id = given.id
        for update skip locked
    ) as message
    where still_ready is not true;
    if others > 0 then
        signal sqlstate '40001' set mysql_errno = 1020,
            message_text = 'Others claimed messages after this transaction began. Roll back, or use READ COMMITTED.';
    end if;
end if;

-- name: held_by_now
-- In a transaction of the caller's, a lock of a message that is not held any more would stay until its end. So look
-- first, and leave such messages out; not under REPEATABLE READ, where a look returns the past.
if not ours and {isolation} = 'READ-COMMITTED' and json_length(p_ids) > 0 then
    select json_arrayagg(message.id) into p_ids
    from json_table(p_ids, '$[*]' columns (id bigint path '$')) as given
    straight_join {queue} as message force index (primary) on message.id = given.id and message.token = p_token;
    if p_ids is null then
        {lease_lost}
    end if;
end if;

-- name: this_held_by_now
-- The same for one message, p_id. The subquery of an IF would lock it.
if not ours and {isolation} = 'READ-COMMITTED' then
    select count(*) into changed from {queue} force index (primary) where id = p_id and token = p_token;
    if changed = 0 then
        {lease_lost}
    end if;
end if;

-- name: lease_lost
signal sqlstate 'TQ003' set mysql_errno = 51003,
    message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';

-- name: not_base64
-- MariaDB's error for what is not in base64. MySQL has none: from_base64 returns null there.
declare exit handler for 1958
    signal sqlstate 'TQ001' set mysql_errno = 51001,
        message_text = 'A payload is not in base64. Give a string that is.';

-- name: all_or_nothing
-- The last declaration of a procedure, and its first statement: its transaction, if `ours`, and what undoes it.
declare exit handler for sqlexception
begin
    call {queue}_undo(ours);
    resignal;
end;
call {queue}_begin(ours);
