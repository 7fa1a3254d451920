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

// door lets one browser into the console: the one that opens the link first. It is safe for concurrent use.
type door struct {
	port   int
	prefix string // of all pages
	who    ops.Principal
	key    string // of the cookie

	mu    sync.Mutex
	token string // of the link; empty once it was used
}

const enterPath = "enter"

// newDoor has pages below a random path. Browsers send a cookie to all ports of a machine, where other programs may
// listen, but to no other path.
func newDoor(port int, who ops.Principal) *door {
	return &door{port: port, prefix: "/" + strings.ToLower(rand.Text()) + "/", who: who, key: rand.Text(), token: rand.Text()}
}

// link is the address that lets a person in.
func (d *door) link() string {
	return fmt.Sprintf("http://127.0.0.1:%d%s?token=%s", d.port, d.prefix+enterPath, d.token)
}

// hosts are the names of this machine: a request under another name gets nothing.
func (d *door) hosts() []string {
	return []string{fmt.Sprintf("127.0.0.1:%d", d.port), fmt.Sprintf("localhost:%d", d.port)}
}

const doorCookie = "asyncmonolith-serve"

var errOutside = errors.New("this browser has not used the link") // immutable

// authorize knows who was let in.
func (d *door) authorize(r *http.Request) (ops.Principal, error) {
	cookie, err := r.Cookie(doorCookie)
	if err != nil || !same(cookie.Value, d.key) {
		return ops.Principal{}, errOutside
	}
	return d.who, nil
}

// before answers the link, and leaves all else to the console.
func (d *door) before(console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != d.prefix+enterPath {
			console.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer") // the link is in the address
		if status, says := d.enter(r); status != http.StatusSeeOther {
			http.Error(w, says, status)
			return
		}
		// Lax, and not strict: a link from a chat or a ticket is to find the browser let in.
		http.SetCookie(w, &http.Cookie{Name: doorCookie, Value: d.key, Path: d.prefix, HttpOnly: true, SameSite: http.SameSiteLaxMode})
		w.Header().Set("Location", "./")
		w.WriteHeader(http.StatusSeeOther)
	})
}

// enter reports whether a request may come in, which uses the link up.
func (d *door) enter(r *http.Request) (status int, says string) {
	if r.Method != http.MethodGet { // as those send that look what a link leads to
		return http.StatusMethodNotAllowed, "GET is allowed."
	}
	if r.Host != d.hosts()[0] && r.Host != d.hosts()[1] {
		return http.StatusMisdirectedRequest, "This is not a console of the host that was asked for."
	}
	if _, err := d.authorize(r); err == nil {
		return http.StatusSeeOther, ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.token == "" || !same(r.URL.Query().Get("token"), d.token) {
		return http.StatusForbidden, "This link is not valid, or not any more: it works once. Start asyncmonolith serve again for another."
	}
	d.token = ""
	return http.StatusSeeOther, ""
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
