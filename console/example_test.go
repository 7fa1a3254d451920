package console_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// The console is an http.Handler. Authorize uses the application's login and returns the user and
// their role. All other requests are refused.
func ExampleNew() {
	db := bun.NewDB(sql.OpenDB(away{}), pgdialect.New()) // the application's
	defer db.Close()
	registry, err := bus.NewRegistry() // the application's
	if err != nil {
		fmt.Println(err)
		return
	}
	service, err := ops.New(ops.Config{DB: db, Registry: registry})
	if err != nil {
		fmt.Println(err)
		return
	}
	pages, err := console.New(service, console.Config{
		Environment: "production",
		LoginURL:    "/login?next={url}",
		Authorize: func(r *http.Request) (ops.Principal, error) {
			cookie, err := r.Cookie("session") // of the application's login
			if err != nil {
				return ops.Principal{}, errors.New("not logged in")
			}
			return ops.Principal{Name: cookie.Value, Role: ops.Operator}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/asyncmonolith/", pages)

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/asyncmonolith/poisoned", nil))
	fmt.Println(answer.Code, answer.Header().Get("Location"))
	// Output: 303 /login?next=%2Fasyncmonolith%2Fpoisoned
}
