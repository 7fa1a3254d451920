package pgxnotify_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncmonolith/asyncmonolith-go/notify/pgxnotify"
)

// The listener connects to the server itself, also if the application uses a pooler.
func ExampleNew() {
	config, err := pgx.ParseConfig("postgres://app:secret@127.0.0.1:1/shop?connect_timeout=1")
	if err != nil {
		fmt.Println(err)
		return
	}
	listener := pgxnotify.New(config) // for notify.NotifierConfig

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = listener.Listen(ctx, "orders", func() { fmt.Println("listening") }, func(text string) { fmt.Println(text) })
	fmt.Println(err != nil) // there is no server
	// Output: true
}
