// Writes events from Go with go-sql-driver, in the transactions of its own business rows.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"

	_ "github.com/go-sql-driver/mysql"
)

const emit = "insert into posthaste_outbox (topic, `key`, `type`, content_type, payload, headers) " +
	"values ('orders', ?, ?, ?, ?, ?)"
const lock = "select slot from posthaste_key_locks " +
	"where slot = conv(left(sha2(?, 256), 4), 16, 10) & 16383 for update"
const insert = "insert into orders (id, state) values (?, 'placed')"

var headers = encoded([]any{"source", "shop", "source", "again", "no-value", nil})

func encoded(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}

// Runs the statements in one transaction, and commits it unless one of them fails.
func transaction(database *sql.DB, work func(run func(sql string, parameters ...any))) error {
	tx, err := database.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	work(func(sql string, parameters ...any) {
		if err == nil {
			_, err = tx.Exec(sql, parameters...)
		}
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	database, err := sql.Open("mysql", os.Getenv("DATABASE_DSN")) // app@tcp(localhost:3306)/shop
	if err != nil {
		log.Fatal(err)
	}
	defer database.Close()
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}

	// A business row and its event: both, or neither.
	must(transaction(database, func(run func(sql string, parameters ...any)) {
		run(insert, "order-1")
		run(emit, "order-1", "order.placed", nil, "text: Größe", headers)
	}))

	// JSON, bytes, and no payload at all: a tombstone.
	must(transaction(database, func(run func(sql string, parameters ...any)) {
		run(emit, "order-1", nil, "application/json", encoded(map[string]int{"a": 1}), "[]")
		run(emit, "order-1", nil, nil, []byte{0x00, 0xff, 0xfe}, "[]")
		run(emit, "order-1", nil, nil, nil, "[]")
	}))

	// No business row to lock first: the slot of the event's key is locked until the commit.
	must(transaction(database, func(run func(sql string, parameters ...any)) {
		run(lock, "order-1")
		run(emit, "order-1", nil, nil, "locked", "[]")
	}))

	// A savepoint that is rolled back takes its event with it; the transaction goes on.
	must(transaction(database, func(run func(sql string, parameters ...any)) {
		run("savepoint attempt")
		run(emit, "order-1", nil, nil, "never", "[]")
		run("rollback to savepoint attempt")
		run(emit, "order-1", nil, nil, "after the savepoint", "[]")
	}))
}
