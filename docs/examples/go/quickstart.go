// Writes a business row and its event, from Go with pgx 5.
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

const insert = `insert into orders (state) values ('placed') returning id`
const emit = `select posthaste.emit('orders', $1::jsonb, key => $2, type => 'order.placed',
                                    headers => $3)`

type line struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

func placeOrder(ctx context.Context, connection *pgx.Conn, lines []line) error {
	return pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error { // commits, or rolls back
		var order string
		if err := tx.QueryRow(ctx, insert).Scan(&order); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, emit, lines, order, []string{"source", "shop"})
		return err
	})
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := placeOrder(ctx, connection, []line{{"book", 2}}); err != nil {
		log.Fatal(err)
	}
}
