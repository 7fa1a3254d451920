package console_test

import (
	"fmt"
	"net/http"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// The console is an http.Handler. Authorize uses the application's login and returns the user and
// their role.
func ExampleNew() {
	var (
		db       *bun.DB       // opened by the application
		registry *bus.Registry // of the application
		login    func(*http.Request) (name string, err error)
	)
	service, err := ops.New(ops.Config{DB: db, Registry: registry})
	if err != nil {
		fmt.Println(err)
		return
	}
	pages, err := console.New(service, console.Config{
		Environment: "production",
		Authorize: func(r *http.Request) (ops.Principal, error) {
			name, err := login(r)
			return ops.Principal{Name: name, Role: ops.Operator}, err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/asyncmonolith/", pages)
	fmt.Println(http.ListenAndServe("localhost:8080", mux))
}
