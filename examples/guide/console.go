package guide

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// User is who is logged in to the shop.
type User struct {
	Email string
	Team  string
}

// Sessions are the logins of the shop.
type Sessions interface {
	// User returns an error for a request of nobody.
	User(*http.Request) (User, error)
}

// OpenConsole makes the pages for people who look after messages.
func OpenConsole(service *ops.Service, sessions Sessions) (*console.Console, error) {
	// snippet: console
	roles := map[string]ops.Role{"support": ops.Viewer, "on-call": ops.Operator, "platform": ops.Administrator}
	pages, err := console.New(service, console.Config{
		Authorize: func(r *http.Request) (ops.Principal, error) {
			user, err := sessions.User(r) // your login
			return ops.Principal{Name: user.Email, Role: roles[user.Team]}, err
		},
		LoginURL:    "/login?next={url}",
		Environment: "production",
		Hosts:       []string{"shop.example.com"},
		TraceURL:    "https://traces.example.com/trace/{trace}",
	})
	// end
	return pages, err
}

// MountConsole has a server of the standard library show them.
func MountConsole(mux *http.ServeMux, pages *console.Console) {
	// snippet: mount
	mux.Handle("/asyncmonolith/", pages)
	// end
}

// MountConsoleWithChi has a router of chi show them.
func MountConsoleWithChi(router chi.Router, pages *console.Console) {
	// snippet: chi
	router.Handle("/asyncmonolith/*", pages)
	// end
}
