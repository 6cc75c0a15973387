#!/bin/sh
# A client without Python: it processes the queue "orders" through its stored procedures, until nothing is ready.
# MARIADB is the client program and its options, the database of the queue last: MARIADB='mariadb --user=worker shop'.
#
#     examples/clients/mariadb.sh push '{"id": 7}'     one message
#     examples/clients/mariadb.sh work                 pop, do the work, complete; or fail
set -eu

# Rows as lines of fields between tabs; tabs, newlines and backslashes in them are escaped.
run() {
    ${MARIADB:-mariadb} --default-character-set=utf8mb4 --batch --skip-column-names --execute "$1"
}

# A value goes into the text in hexadecimal digits: there is nothing in it to escape.
text() {
    printf "convert(x'%s' using utf8mb4)" "$(printf %s "$1" | od -An -v -tx1 | tr -d ' \n')"
}

push() {
    run "call tq_orders_push($(text "$1"), '{\"producer\": \"mariadb.sh\"}')"
}

work() {
    while message=$(run "call tq_orders_pop('{\"consumer\": \"mariadb.sh\", \"lease\": 30}')") && [ -n "$message" ]; do
        id=$(printf %s "$message" | cut -f 1)
        payload=$(printf %b "$(printf %s "$message" | cut -f 2)")
        attempts=$(printf %s "$message" | cut -f 4)
        token=$(printf %s "$message" | cut -f 13)
        case $payload in # the work
            *bad*)
                run "call tq_orders_fail($id, '$token', $(text "what mariadb.sh cannot do"), null)" >/dev/null
                printf 'failed %s, attempt %s\n' "$id" "$attempts"
                ;;
            *)
                run "call tq_orders_complete('[$id]', '$token', null)" >/dev/null
                printf 'done %s %s\n' "$id" "$payload"
                ;;
        esac
    done
}

case ${1:-} in
    push) push "$2" ;;
    work) work ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
