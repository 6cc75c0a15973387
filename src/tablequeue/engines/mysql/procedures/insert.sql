-- {queue}_insert: insert one message. Returns its id. For {queue}_push_one and {queue}_push_many; see {queue}_push.
{create} procedure {queue}_insert(
    p_payload {payload},
    p_headers {text},
    p_delay double,
    p_due datetime(6),
    p_priority bigint,
    p_group {text},
    p_key {text},
    p_expires double,
    p_on_conflict {text},
    p_producer {text},
    p_now datetime(6),
    out p_id bigint
)
begin
    declare taken boolean;
    declare refusal varchar(128) character set utf8mb4 default case
        when p_payload is null then
            'A payload is missing, or of another type than those of the queue. Give each message one.'
        -- [json]
        when not json_valid(p_payload) then
            'The payload is no JSON. Give the text of a JSON value.'
        -- [end]
        when p_delay is not null and p_due is not null then
            'Both delay and due are given. Give one of them.'
        when not p_delay between 0 and {longest} then
            'The delay is not from 0 to 100 years. Give another number of seconds.'
        -- [expires]
        when p_expires <= 0 or p_expires > {longest} then
            'expires is not above 0, to 100 years. Give another number of seconds.'
        -- [end]
        -- [not expires]
        when p_expires is not null then
            'The messages of this queue do not expire. Leave expires out.'
        -- [end]
        -- [not priority]
        when p_priority is not null then
            'The queue does not go by priority. Leave the priority out.'
        -- [end]
        -- [priority]
        when not p_priority between -{largest} and {largest} then
            'The priority is not from -{largest} to {largest}. Give another one.'
        -- [end]
        -- [groups]
        when p_group is null then
            'The queue has groups, and none is given. Give the message its group.'
        when not char_length(p_group) between 1 and 255 then
            'The group is not of 1 to 255 characters. Give another one.'
        -- [end]
        -- [fair]
        when not char_length(p_group) between 1 and 255 then
            'The group is not of 1 to 255 characters. Give another one.'
        -- [end]
        -- [ungrouped]
        when p_group is not null then
            'The queue has no groups. Leave the group out.'
        -- [end]
        -- [key_for]
        when p_key is not null then
            'The keys of this queue stay taken for a time, which no procedure notes. Leave the key out.'
        -- [end]
        when not char_length(p_key) between 1 and 255 then
            'The key is not of 1 to 255 characters. Give another one.'
        when p_on_conflict not in ('raise', 'skip', 'return') then
            'on_conflict is not known. Give raise, skip or return.'
    end;
    if refusal is not null then
        signal sqlstate 'TQ001' set mysql_errno = 51001, message_text = refusal;
    end if;
    set p_priority = coalesce(p_priority, 0);
    -- [due]
    if p_due is null then
        set p_delay = coalesce(p_delay, 0);
    end if;
    -- [end]
    -- [strict]
    set p_group = '';
    -- [end]
    repeat
        set taken = false, p_id = null;
        begin
            declare continue handler for 1062 set taken = true; -- the insert alone is undone
            {sql push};
        end;
        if not taken then
            set p_id = last_insert_id();
        elseif p_on_conflict = 'raise' then
            set refusal = concat(
                'A live message has the key ', left(p_key, 40),
                '. Push with another key, or with on_conflict skip or return.'
            );
            signal sqlstate 'TQ002' set mysql_errno = 51002, message_text = refusal;
        elseif p_on_conflict = 'return' then
            with there (dedup_key, id) as (
                {sql find_keys keys=(p_key)}
            )
            select max(id) into p_id from there; -- null if it was finished meanwhile: push again
        end if;
    until p_id is not null or p_on_conflict = 'skip' end repeat;
end //
