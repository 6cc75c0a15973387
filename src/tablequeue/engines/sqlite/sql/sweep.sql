-- Up to :n messages that are due, and as many whose lease has expired, become ready; the latter become dead
-- letters instead if their last attempt is spent. A lost lease is an error of the attempt. One that was told to stop
-- stays as it is, in progress: cancel_held ends it.
-- Indexes: {table}__scheduled, {table}__in_progress. A crash leaves all or nothing.
update {queue}
set state = case
        when cancelled_at is not null then state
        when state = 'in_progress' and attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
        else 'ready'
    end,
    errors = case
        when state = 'in_progress' and cancelled_at is null then {errors_and_lost}
        else errors
    end,
    token = case when cancelled_at is not null then token end,
    lease_until = case when cancelled_at is not null then lease_until end{out_of_run_if_swept}
where id in (
        select id from {queue} where state = 'scheduled' and due_at <= {now} order by due_at limit :n
    )
    or id in (
        select id from {queue} where state = 'in_progress' and lease_until <= {now} order by lease_until limit :n
    )
returning id, state;
