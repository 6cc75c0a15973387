-- What the stored procedures have in common.

-- name: claimed_order
-- The rest of the query that reads claimed messages: their order.
-- [priority]
order by priority desc, id;
-- [fair]
order by row_number() over (partition by slot order by id), slot <= @`tablequeue.{table}.before`, slot;
-- [by_id_or_due]
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
