-- {queue}_extend: the lease on message p_id, held under p_token, ends so many seconds from now; for consumers.
-- Returns that end, in UTC. Error 51003 if the lease is lost.
-- Options: seconds (else {lease}), now.
-- Locks: the message, until the transaction ends.
{create} procedure {queue}_extend(p_id bigint, p_token {token}, p_options {text})
    sql security definer
begin
    declare ours boolean;
    declare p_lease double;
    declare p_now, lease_end datetime(6);
    declare exit handler for sqlexception
    begin
        call {queue}_undo(ours);
        resignal;
    end;
    call {queue}_begin(ours);
    call {queue}_options(p_options, '["seconds", "now"]');
    select coalesce(seconds, {lease}), if(json_type(clock) = 'STRING', json_unquote(clock), null) into p_lease, p_now
    from json_table(p_options, '$' columns (
        seconds double path '$.seconds',
        clock json path '$.now'
    )) as options;
    if not p_lease between 0 and {longest} then
        signal sqlstate 'TQ001' set mysql_errno = 51001,
            message_text = 'seconds is not from 0 to 100 years. Give another number.';
    end if;
    {sql extend/1 ids=json_array(p_id)};
    select max(lease_until) into lease_end from (
        {sql extend/2 ids=json_array(p_id)}
    ) as message;
    if lease_end is null then
        signal sqlstate 'TQ003' set mysql_errno = 51003,
            message_text = 'The lease is lost: it expired, or the message was finished. Make it longer.';
    end if;
    if ours then
        commit;
    end if;
    select lease_end as lease_until;
end //
