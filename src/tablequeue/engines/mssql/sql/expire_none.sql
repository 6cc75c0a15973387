-- Up to :n waiting messages whose time is over become dead letters: there is no history that could show them.
-- Index: {table}__expires. Locks: the rows; locked rows are skipped. A crash leaves all or nothing.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
declare @error nvarchar(max) = N'expired';
with expired as (
    select top (@n) id, state, attempts, group_key, consumer, errors, expires_at
    from {queue} with (index ({table}__expires), rowlock, readpast, updlock, readcommittedlock)
    where {waiting} and expires_at <= @now
    order by expires_at
)
update expired
set state = 'dead',
    errors = {errors_and_one}
{note_inserted}output inserted.id;
