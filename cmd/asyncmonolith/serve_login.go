package main

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// login authorizes one browser: the first that opens the link. It is safe for concurrent use.
type login struct {
	port   int
	prefix string // of all pages
	who    ops.Principal
	key    string // of the cookie

	mu    sync.Mutex
	token string // of the link; empty after its use
}

const loginPath = "enter"

// newLogin puts the console below a random path. Browsers send a cookie to all ports of a host, where other programs may
// listen, but to no other path.
func newLogin(port int, who ops.Principal) *login {
	return &login{port: port, prefix: "/" + strings.ToLower(rand.Text()) + "/", who: who, key: rand.Text(), token: rand.Text()}
}

func (l *login) link() string {
	return fmt.Sprintf("http://127.0.0.1:%d%s?token=%s", l.port, l.prefix+loginPath, l.token)
}

// hosts are the allowed Host headers.
func (l *login) hosts() []string {
	return []string{fmt.Sprintf("127.0.0.1:%d", l.port), fmt.Sprintf("localhost:%d", l.port)}
}

const loginCookie = "asyncmonolith-serve"

var errNotLoggedIn = errors.New("this browser has not used the link") // immutable

func (l *login) authorize(r *http.Request) (ops.Principal, error) {
	cookie, err := r.Cookie(loginCookie)
	if err != nil || !same(cookie.Value, l.key) {
		return ops.Principal{}, errNotLoggedIn
	}
	return l.who, nil
}

// handler handles requests to the link, and passes all others to the console.
func (l *login) handler(console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != l.prefix+loginPath {
			console.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer") // the address has the token
		status, text := l.redeem(r)
		if status != http.StatusSeeOther {
			http.Error(w, text, status)
			return
		}
		// Lax, since links from a chat or a ticket must send the cookie, too.
		http.SetCookie(w, &http.Cookie{Name: loginCookie, Value: l.key, Path: l.prefix, HttpOnly: true, SameSite: http.SameSiteLaxMode})
		w.Header().Set("Location", "./")
		w.WriteHeader(http.StatusSeeOther)
	})
}

// redeem checks a request to the link and invalidates the token.
func (l *login) redeem(r *http.Request) (status int, text string) {
	if r.Method != http.MethodGet { // link previews send HEAD
		return http.StatusMethodNotAllowed, "GET is allowed."
	}
	if r.Host != l.hosts()[0] && r.Host != l.hosts()[1] {
		return http.StatusMisdirectedRequest, "This console does not serve the requested host."
	}
	if _, err := l.authorize(r); err == nil {
		return http.StatusSeeOther, ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == "" || !same(r.URL.Query().Get("token"), l.token) {
		return http.StatusForbidden, "This link is invalid or was used: it works once. " +
			"Start asyncmonolith serve again for a new link."
	}
	l.token = ""
	return http.StatusSeeOther, ""
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
