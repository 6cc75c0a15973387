// A client without Python: it processes the queue "orders" through its stored functions, until nothing is ready.
// pgx reads the connection from the environment (PGHOST, PGUSER, ...); TABLEQUEUE_SCHEMA is the schema of the queue.
//
//	go run . push '{"id": 7}'      one message
//	go run . work                  pop, do the work, complete; or fail
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type message struct {
	ID       int64
	Token    string
	Attempts int
	Payload  string
}

func orders(verb string) string {
	schema := os.Getenv("TABLEQUEUE_SCHEMA")
	if schema == "" {
		schema = "public"
	}
	return pgx.Identifier{schema, "tq_orders_" + verb}.Sanitize()
}

func push(ctx context.Context, db *pgx.Conn, payload string) error {
	var id int64
	err := db.QueryRow(ctx, "select "+orders("push")+"($1, p_producer => 'go')", payload).Scan(&id)
	fmt.Println(id)
	return err
}

func work(ctx context.Context, db *pgx.Conn) error {
	pop := "select id, token::text, attempts, payload::text as payload from " + orders("pop") + "(10, 'go', p_lease => 30)"
	for {
		rows, err := db.Query(ctx, pop)
		if err != nil {
			return err
		}
		messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
		if err != nil || len(messages) == 0 {
			return err
		}
		for _, each := range messages {
			if err := end(ctx, db, each); err != nil {
				return err
			}
		}
	}
}

// end does the work and completes the message, or fails it with the error of the work.
func end(ctx context.Context, db *pgx.Conn, each message) error {
	if strings.Contains(each.Payload, "bad") { // the work
		_, err := db.Exec(ctx, "select "+orders("fail")+"($1, $2, $3)", each.ID, each.Token, "what Go cannot do")
		fmt.Printf("failed %d, attempt %d\n", each.ID, each.Attempts)
		return unlessLost(err)
	}
	_, err := db.Exec(ctx, "select "+orders("complete")+"(array[$1::bigint], $2)", each.ID, each.Token)
	fmt.Printf("done %d %s\n", each.ID, each.Payload)
	return unlessLost(err)
}

// unlessLost leaves out the error that another consumer has the message, because the lease was lost.
func unlessLost(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "TQ003" {
		return nil
	}
	return err
}

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "")
	if err == nil {
		defer db.Close(ctx)
		switch {
		case len(os.Args) == 3 && os.Args[1] == "push":
			err = push(ctx, db, os.Args[2])
		case len(os.Args) == 2 && os.Args[1] == "work":
			err = work(ctx, db)
		default:
			err = errors.New("go run . push PAYLOAD | work")
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}
