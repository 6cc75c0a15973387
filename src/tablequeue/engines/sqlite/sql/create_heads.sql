-- Whenever a group may have lost its head, or got its first message, a trigger makes the lowest id its head; it
-- is scheduled if it has a due time, which the next sweep looks at. Not while an open run of the group has a message
-- with a lower id; see create_groups. One writer at a time: nothing can come between.
create trigger {table}__pushed after insert on {queue}
    when not exists (select 1 from {queue} where group_key = new.group_key and {head} and in_run >= 0)
    begin
        update {queue} set state = case when due_at is null then 'ready' else 'scheduled' end
        where id = (select id from {queue} where group_key = new.group_key and state = 'blocked' order by id limit 1)
            and not exists (
                select 1 from {queue} as held
                where held.group_key = new.group_key and held.{head} and held.in_run > -{queue}.id
            );
    end;
create trigger {table}__moved after update of state on {queue}
    when new.state in ('dead', 'blocked')
        and not exists (select 1 from {queue} where group_key = new.group_key and {head} and in_run >= 0)
    begin
        update {queue} set state = case when due_at is null then 'ready' else 'scheduled' end
        where id = (select id from {queue} where group_key = new.group_key and state = 'blocked' order by id limit 1)
            and not exists (
                select 1 from {queue} as held
                where held.group_key = new.group_key and held.{head} and held.in_run > -{queue}.id
            );
    end;
create trigger {table}__left after delete on {queue}
    when not exists (select 1 from {queue} where group_key = old.group_key and {head} and in_run >= 0)
    begin
        update {queue} set state = case when due_at is null then 'ready' else 'scheduled' end
        where id = (select id from {queue} where group_key = old.group_key and state = 'blocked' order by id limit 1)
            and not exists (
                select 1 from {queue} as held
                where held.group_key = old.group_key and held.{head} and held.in_run > -{queue}.id
            );
    end;
