-- {queue}_peek: the first messages of a state, claiming none; for observers.
-- Options: n (else 10), state (else ready), after (only ids above it).
-- Locks: none.
{create} procedure {queue}_peek(p_options {text})
    sql security definer
begin
    declare p_n, p_after bigint;
    declare which {text};
    call {queue}_options(p_options, '["n", "state", "after"]');
    select coalesce(n, 10), if(json_type(state) = 'STRING', json_unquote(state), 'ready'), coalesce(after, 0)
    into p_n, which, p_after
    from json_table(p_options, '$' columns (
        n bigint path '$.n',
        state json path '$.state',
        after bigint path '$.after'
    )) as options;
    -- The state is spelled into each statement, as in those of the verbs.
    case which
        when 'ready' then
            {sql peek state=ready};
        when 'scheduled' then
            {sql peek state=scheduled};
        when 'in_progress' then
            {sql peek state=in_progress};
        when 'dead' then
            {sql peek state=dead};
        when 'blocked' then
            {sql peek state=blocked};
        else
            signal sqlstate 'TQ001' set mysql_errno = 51001,
                message_text = 'The state is not known. Give ready, scheduled, in_progress, dead or blocked.';
    end case;
end //
