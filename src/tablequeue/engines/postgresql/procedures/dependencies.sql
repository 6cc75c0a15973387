-- Procedures about messages that wait for others.

-- name: free
-- {queue}_free: make the messages due that wait for no others any more, and cancel those that a dead letter cancels.
-- For {queue}_sweep. Returns how many are due. It looks at up to 1,000 rows about each queue.
-- Locks: the rows about these messages, until the transaction ends; others pass over them.
create or replace function {queue}_free(p_now timestamptz) returns bigint language plpgsql as $$
    #variable_conflict use_column
    declare
        awaited text;
        ended bigint[];
        cancelled bigint[];
        each_one bigint;
        told boolean;
    begin
        for awaited in
            {sql awaited_tables}
        loop
            continue when awaited = ''; -- the heads
            cancelled := null;
            if exists (select from {catalogue} where {table_of_entry} = awaited) then
                execute format(
                    $look$
                        with ended (id, message, cancels) as (
                            {sql ended_dependencies on_table=$1 due=far n=1000}
                        ), locked as (
                            select ended.*
                            from ended join {dependencies} as waiting on waiting.id = ended.id
                            for update of waiting skip locked
                        )
                        select array_agg(id), array_agg(message) filter (where cancels) from locked
                    $look$,
                    '{prefix}' || awaited
                )
                into ended, cancelled using awaited;
            else
                ended := array(
                    select id from {dependencies} where id = any(array(
                        {sql orphaned_dependencies on_table=awaited n=1000}
                    ))
                    for update skip locked
                );
            end if;
            for each_one, told in
                {sql cancel ids=cancelled}
            loop
            end loop;
            {sql forget_dependencies ids=ended};
        end loop;
        ended := array(
            select id from {dependencies} where id = any(array(
                {sql freed_heads n=1000}
            ))
            for update skip locked
        );
        {sql free_heads ids=ended due=far};
        {sql forget_dependencies ids=ended};
        return cardinality(ended);
    end;
    $$;
revoke all on function {queue}_free from public;
