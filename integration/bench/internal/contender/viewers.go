package contender

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const viewEvery = 2 * time.Second // which is the shortest that people can choose

// viewers are people who have a page of the console open, each another one, in the process that consumes.
func (s *ours) viewers() (runs []func(context.Context) error, err error) {
	if s.variant.Viewers == 0 {
		return nil, nil
	}
	service, err := ops.New(ops.Config{DB: s.db, Registry: s.registry, Redact: ops.ShowAll, Logger: logger()})
	if err != nil {
		return nil, err
	}
	authorize := func(r *http.Request) (ops.Principal, error) {
		return ops.Principal{Name: r.RemoteAddr, Role: ops.Viewer}, nil
	}
	pages, err := console.New(service, console.Config{Authorize: authorize, Logger: logger()})
	if err != nil {
		return nil, err
	}
	open := []string{"", "consumer?name=" + s.variant.Consumer + "-0", "messages", "poisoned", "processes"}
	for i := range s.variant.Viewers {
		name, path := fmt.Sprint("viewer-", i), open[i%len(open)]
		runs = append(runs, func(ctx context.Context) error { return view(ctx, pages, name, path) })
	}
	return runs, nil
}

// view looks at a page again and again, as its script does. A page that could not be had, since others look, is
// left for the next time.
func view(ctx context.Context, pages http.Handler, name, path string) error {
	again := time.NewTicker(viewEvery)
	defer again.Stop()
	for {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/asyncmonolith/"+path, nil)
		r.RemoteAddr = name
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("X-Asyncmonolith-Fragment", "main")
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r)
		if ctx.Err() == nil && w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
			return fmt.Errorf("view %q: got status %d: %s", path, w.Code, w.Body)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}
