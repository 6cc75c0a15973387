-- {queue}_notify: notify the consumers that wait at the queue, at the commit. For the other functions.
-- A transaction that has notified cannot be prepared: two-phase commits push by a client of the library, or while the
-- setting tablequeue.notify is off; then consumers look by themselves, up to 10 s later.
create or replace function {queue}_notify(waited_for boolean) returns void language plpgsql as $$
    begin
        if waited_for and current_setting('tablequeue.notify', true) is distinct from 'off' then
            perform pg_notify('{channel}', '');
        end if;
    end;
    $$;
revoke all on function {queue}_notify from public;
