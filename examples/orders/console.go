package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// login is the service's own: a name, which stands in the audit, and a password that all operators share. A service
// of yours has its sessions.
type login struct{ password string }

var errLoggedOut = errors.New("not logged in")

// who is who asks, which the console wants to know of each request.
func (l login) who(r *http.Request) (ops.Principal, error) {
	name, password, _ := r.BasicAuth()
	if name == "" || subtle.ConstantTimeCompare([]byte(password), []byte(l.password)) != 1 {
		return ops.Principal{}, errLoggedOut
	}
	return ops.Principal{Name: name, Role: ops.Operator}, nil
}

// before has browsers ask for name and password.
func (l login) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := l.who(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="orders", charset="UTF-8"`)
			http.Error(w, "not logged in", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// redact shows operators no more of an order than they need.
func redact(_ context.Context, c ops.Content) ops.Content {
	delete(c.Headers, "authorization")
	return c
}

// newService is how the service of fxmodule is configured.
func newService() ops.Config { return ops.Config{Redact: redact} }

// newConsole has the pages for operators, or nil where there is no password: then there are none.
func newConsole(s settings, service *ops.Service) (*console.Console, error) {
	if s.password == "" {
		return nil, nil
	}
	return console.New(service, console.Config{Authorize: login{s.password}.who, Environment: "example"})
}
