-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- The messages of :ids that ranges under :token hold: those that have not left them.
-- Index: tq_events__s1__token. Locks: the database.
select ids.value
from tq_events__s1__ranges as ranges
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (select value from json_each(coalesce(left_ids, '[]')));

-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- Index: tq_events__s1__token. Locks: the database. In one transaction with range_mark.
-- A seek may have brought back a message that the queue or its history has already: this is its state now.
delete from tq_events__s1_history where id in (select value from json_each(:ids));
insert into tq_events__s1 (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    log.id,
    case when :attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    :attempts, log.pushed_at,
    case when :attempts < :max_attempts and :delay > 0 then coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:delay * 1000000 as integer) end,
    popped_at, popped_at, log.group_key, log.producer, consumer, log.headers,
    case
        when :error is not null then json_array(
            json_object('attempt', :attempts, 'at', coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), 'consumer', consumer, 'error', :error)
        )
    end,
    log.payload
from tq_events__s1__ranges as ranges
join tq_events as log on log.id between first_offset and last_offset
where token = :token and lease_until is not null and log.id in (select value from json_each(:ids))
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors,
    token = null, lease_until = null;
update tq_events__s1__ranges
set apart = apart + (select count(*) from json_each(:ids) where value between first_offset and last_offset)
where token = :token and lease_until is not null;

-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: tq_events__s1__token. Locks: the database. A crash leaves them in progress until the lease expires.
update tq_events__s1__ranges
set left_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(left_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null;
update tq_events__s1__ranges
set finished_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), lease_until = null
where token = :token and lease_until is not null and messages = json_array_length(left_ids);

-- Fail the attempt on message :id, held under :token: the message is ready again after :delay seconds, or a dead letter
-- if this was its last attempt. The error is kept.
-- Index: the primary key. Locks: the database. A crash leaves the message in progress until its lease expires.
update tq_events__s1
set state = case when attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when attempts < :max_attempts then coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:delay * 1000000 as integer) else due_at end,
    errors = json_insert(
        coalesce(errors, '[]'), '$[#]',
        json_object('attempt', attempts, 'at', coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), 'consumer', consumer, 'error', :error)
    ),
    token = null,
    lease_until = null
where id = :id and token = :token
returning state;
