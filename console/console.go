package console

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Config configures a [Console]. Authorize is required.
type Config struct {
	// Authorize returns the principal of a request, by the application's own login. It is required. It
	// runs for each request, and must be safe for concurrent use. A request is refused if it returns
	// an error, an empty name or [ops.None], or panics.
	Authorize func(*http.Request) (ops.Principal, error)
	// Prefix is the URL path under which the console is mounted. It begins and ends with a slash.
	// Defaults to "/asyncmonolith/".
	Prefix string
	// LoginURL is the page to which a GET is redirected if Authorize returns an error, such as "/login?next={url}".
	// "{url}" in its query is replaced by the escaped path and query of the request. The path begins with Prefix, and
	// never names a host. Defaults to none: the console answers 401.
	LoginURL string
	// TraceURL is the http or https address of a trace. "{trace}" stands for its id. Defaults to none: pages have no
	// links to traces.
	TraceURL string
	// Environment is shown on each page, such as "production". Defaults to none.
	Environment string
	// Hosts are the allowed Host headers, such as "ops.example.com" or "localhost:8080". A host without a port
	// allows every port. Set it if browsers reach the console without a proxy. Defaults to any host.
	Hosts []string
	// TrustedOrigins are origins whose pages may send changes, besides the console's own, such as
	// "https://example.com". Defaults to none.
	TrustedOrigins []string
	// Logger logs failures, the same text at most once in 10 s. Defaults to slog.Default().
	Logger *slog.Logger
}

// Console is the handler. It starts no goroutine, and is safe for concurrent use. Make it with [New].
type Console struct {
	config   Config
	service  *ops.Service
	routes   map[string]route // by path
	origins  *http.CrossOriginProtection
	pages    map[string]*template.Template
	assets   assets
	limits   limits
	warnings warnings
	speeds   speeds
	costs    costs
}

const (
	defaultPrefix = "/asyncmonolith/"
	traceMark     = "{trace}"
	urlMark       = "{url}"
)

// New makes a console. It reports all configuration errors at once and does not access the database.
func New(service *ops.Service, c Config) (*Console, error) {
	c.Prefix, c.Logger = cmp.Or(c.Prefix, defaultPrefix), cmp.Or(c.Logger, slog.Default())
	errs := c.check()
	if service == nil {
		errs = append(errs, errors.New("the service is nil"))
	}
	origins := http.NewCrossOriginProtection()
	for _, origin := range c.TrustedOrigins {
		if err := origins.AddTrustedOrigin(origin); err != nil {
			errs = append(errs, fmt.Errorf("config: TrustedOrigins: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("console: new: %w", err)
	}
	served, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("console: new: %w", err)
	}
	pages, err := parsePages()
	if err != nil {
		return nil, fmt.Errorf("console: new: %w", err)
	}
	return &Console{
		config: c, service: service, routes: byPath(served.routes(), routes()), origins: origins, pages: pages, assets: served,
	}, nil
}

func (c Config) check() (errs []error) {
	if c.Authorize == nil {
		errs = append(errs, errors.New("config: Authorize is nil: it is required"))
	}
	if !strings.HasPrefix(c.Prefix, "/") || !strings.HasSuffix(c.Prefix, "/") || strings.HasPrefix(c.Prefix, "//") {
		errs = append(errs, fmt.Errorf("config: Prefix %q: must begin and end with one slash", c.Prefix))
	}
	if c.LoginURL != "" {
		u, err := url.Parse(c.LoginURL)
		path, _, _ := strings.Cut(c.LoginURL, "?")
		if err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || strings.Contains(path, urlMark) {
			errs = append(errs, fmt.Errorf("config: LoginURL %q: must be a path or an http or https URL, with %s only in the query",
				c.LoginURL, urlMark))
		}
	}
	if c.TraceURL != "" {
		u, err := url.Parse(strings.ReplaceAll(c.TraceURL, traceMark, "trace"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(c.TraceURL, traceMark) {
			errs = append(errs, fmt.Errorf("config: TraceURL %q: must be an http or https URL that contains %s",
				c.TraceURL, traceMark))
		}
	}
	for _, host := range c.Hosts {
		if host == "" || strings.ContainsAny(host, "/@ ") {
			errs = append(errs, fmt.Errorf("config: Hosts: %q: must be a host name, with or without a port", host))
		}
	}
	return errs
}

// ServeHTTP implements http.Handler. Mount it without http.StripPrefix: the request path must begin with Config.Prefix.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	req := &request{Console: c, Request: r, w: w}
	if err := req.admit(); err != nil {
		req.refuse(err)
		return
	}
	if err := req.route.answer(req); err != nil {
		req.refuse(err)
	}
	req.finish()
}
