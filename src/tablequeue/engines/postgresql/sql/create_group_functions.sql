-- Refuse new heads of groups that a run has closed, or that are behind a message of an open run, as the unique index
-- refuses a second head. Promote calls it.
-- The snapshot of promote may be older than the run. The function looks with a new one. Since the index has the new
-- head, no other run can begin before the commit. That holds under READ COMMITTED, where promote runs.
create or replace function {queue}__closed(heads text[]) returns void language plpgsql strict as $$
    begin
        if exists (
            select from unnest(heads) as head (group_key)
            where exists (
                select from {queue} as message
                where message.group_key = head.group_key and message.in_run <> 0 and {head}
                    and message.in_run > (
                        select -front.id from {queue} as front
                        where front.group_key = head.group_key and front.in_run = 0 and front.{head}
                    )
            )
        ) then
            raise exception using errcode = 'unique_violation', constraint = '{table}__front',
                message = 'A run of the group is in progress.';
        end if;
    end;
    $$;
