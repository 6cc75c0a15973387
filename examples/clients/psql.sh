#!/bin/sh
# A client without Python: it processes the queue "orders" through its stored functions, until nothing is ready.
# psql reads the connection from the environment (PGHOST, PGUSER, ...); TABLEQUEUE_SCHEMA is the schema of the queue.
#
#     examples/clients/psql.sh push '{"id": 7}'     one message
#     examples/clients/psql.sh work                 pop, do the work, complete; or fail
set -eu
SCHEMA=${TABLEQUEUE_SCHEMA:-public}

# Values go in as psql variables, quoted by psql: never into the text.
run() {
    psql --no-psqlrc --quiet --no-align --tuples-only --field-separator '	' --set ON_ERROR_STOP=1 --set schema="$SCHEMA" "$@"
}

push() {
    run --set payload="$1" <<'SQL'
select :"schema".tq_orders_push(:'payload', p_producer => 'psql.sh');
SQL
}

pop() {
    run <<'SQL'
select id, token, attempts, payload from :"schema".tq_orders_pop(1, 'psql.sh', p_lease => 30);
SQL
}

complete() {
    run --set id="$1" --set token="$2" <<'SQL'
select :"schema".tq_orders_complete(array[:'id'::bigint], :'token');
SQL
}

fail() {
    run --set id="$1" --set token="$2" --set error="$3" <<'SQL'
select :"schema".tq_orders_fail(:'id', :'token', :'error');
SQL
}

work() {
    while message=$(pop) && [ -n "$message" ]; do
        IFS='	' read -r id token attempts payload <<TEXT
$message
TEXT
        case $payload in # the work
            *bad*) fail "$id" "$token" "what psql.sh cannot do" >/dev/null && printf 'failed %s, attempt %s\n' "$id" "$attempts" ;;
            *) complete "$id" "$token" >/dev/null && printf 'done %s %s\n' "$id" "$payload" ;;
        esac
    done
}

case ${1:-} in
    push) push "$2" ;;
    work) work ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
