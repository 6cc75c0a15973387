-- Which messages a claim claims: of a fair queue, and of a queue with limits.

-- name: in_turn
-- Fills @chosen: the n / groups first messages of each group, and one more of the groups that come first. The claim
-- locks those of them that are still ready. With `take`, a take removes them. With `up_to_high`, a claim of a stream
-- ends at @high.
-- [group_rate or per_group not take]
{chosen_in_turn with_room}
-- [else]
{chosen_in_turn}
-- [end]

-- name: chosen_in_turn
{ring_of_groups}
declare @chosen table (id bigint not null primary key);
delete from @chosen;
insert into @chosen (id)
select message.id
from @ring as ring
cross apply (
    select top (
        coalesce(cast(
            -- [with_room]
            (
                select min(given.number) from (values
                    (ring.room),
                    ({share})
                ) as given (number)
            )
            -- [else]
            {share}
            -- [end]
            as bigint
        ), 0)
    ) id
    from {queue} with (index ({table}__ready), readpast, readcommittedlock)
    where {claimable} and slot = ring.slot{up_to_high}
    order by id
) as message;

-- name: share
@n / nullif(@groups, 0)
    + case when ring.number <= @n - @n / nullif(@groups, 0) * @groups then 1 else 0 end

-- name: ring_of_groups
-- Fills @ring: the groups that have something ready, behind the slot @served, once round. A look at each passes over
-- its other messages. A recursive query may have no TOP here, so it is a loop. Locked messages are skipped, not waited
-- for. In a queue with limits for each group, the ring has the room of each group. A group without room is passed over.
-- The claim locks the stripe of a group, and then counts again: nobody else can claim of that group any more.
declare @slot bigint = @served;
declare @next bigint;
declare @lap int = 0;
declare @groups int = 0;
-- [with_room]
declare @stripe int;
declare @room bigint;
declare @ring table (number int not null primary key, slot bigint not null, room bigint not null);
-- [else]
declare @ring table (number int not null primary key, slot bigint not null);
-- [end]
delete from @ring;
while @groups < @n and @lap < 2
begin
    set @next = null;
    -- [with_room]
    set @stripe = null;
    -- [end]
    select top (1) @next = slot
    from {queue} with (index ({table}__ready), readpast, readcommittedlock)
    where {claimable} and slot > @slot and (@lap = 0 or slot <= @served){up_to_high}
    order by slot, id;
    -- [with_room]
    set @room = {left};
    if @next is not null and @room > 0
        select @stripe = stripe
        from {stripes} with (rowlock, readpast, updlock, readcommittedlock)
        where stripe = cast(@next & {last_stripe} as int);
    if @stripe is not null set @room = {left};
    -- [end]
    if @next is null
    begin
        set @lap = @lap + 1;
        set @slot = -9223372036854775807;
    end
    else
    -- [with_room]
        set @slot = @next;
    if @stripe is not null and @room > 0
    begin
        set @groups = @groups + 1;
        insert into @ring (number, slot, room) values (@groups, @next, @room);
    end;
    -- [else]
    begin
        set @groups = @groups + 1;
        set @slot = @next;
        insert into @ring (number, slot) values (@groups, @next);
    end;
    -- [end]
end;

-- name: up_to_high
-- The end of what a claim of a stream may claim.
-- [up_to_high]
 and id <= @high
-- [end]

-- name: left
-- How many messages of the group @next may be claimed: by `per_group`, and by its rate.
-- [per_group not group_rate]
{places_left}
-- [group_rate not per_group or group_rate take]
{tokens_left}
-- [group_rate per_group not take]
(
    select min(given.number) from (values
        ({places_left}),
        ({tokens_left})
    ) as given (number)
)
-- [end]

-- name: places_left
{per_group} - (select count(*) from {queue} where state = 'in_progress' and slot = @next)

-- name: tokens_left
coalesce((
    select case when spent_until > @now
        then {group_burst} - (datediff_big(microsecond, @now, spent_until) + {group_step} - 1) / {group_step}
        else {group_burst} end
    from {group_rates} where slot = @next
), {group_burst})

-- name: until_room
-- The seconds until the limits of the queue allow a message; `until_group` has set @wait.
-- [group_limited]
(select max(given.seconds) from (values ({until_rate}), (@wait)) as given (seconds))
-- [else]
{until_rate}
-- [end]

-- name: until_group
-- Sets @wait: the seconds until one of the first groups that have something ready has room for it.
declare @wait float;
declare @own float;
declare @slot bigint = -9223372036854775807;
declare @next bigint;
declare @looked int = 0;
while @looked < {looked_at} and (@wait is null or @wait > 0)
begin
    set @next = null;
    select top (1) @next = slot
    from {queue} with (index ({table}__ready))
    where {free} and slot > @slot
    order by slot, id;
    if @next is null break;
    set @own = (select max(given.seconds) from (values
        (0e0)
        -- [per_group]
        , (
            case when {places_left} > 0 then 0e0 else coalesce(datediff_big(microsecond, @now, (
                select min(lease_until) from {queue} where state = 'in_progress' and slot = @next
            )) / 1e6, 1e0) end
        )
        -- [group_rate]
        , ((
            select (
                datediff_big(microsecond, @now, spent_until) - ({group_burst} - 1) * cast({group_step} as bigint)
            ) / 1e6
            from {group_rates} where slot = @next
        ))
        -- [end]
    ) as given (seconds));
    set @wait = case when @wait < @own then @wait else @own end;
    set @slot = @next;
    set @looked = @looked + 1;
end;
