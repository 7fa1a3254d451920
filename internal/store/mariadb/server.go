package mariadb

import (
	"context"
	"regexp"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Server reads version(). A limit of no rows leaves the query empty; Check reports that.
func (m *database) Server(ctx context.Context, db bun.IDB) (dialect.Server, error) {
	var said []string
	if err := db.NewRaw(`SELECT version()`).Scan(ctx, &said); err != nil || len(said) == 0 {
		return dialect.Server{}, err
	}
	return serverOf(said[0]), nil
}

// numbered matches MySQL's version, with a distribution's suffix and no other name.
var numbered = regexp.MustCompile(`^(\d+)\.\d+\.\d+(-log|-\d\S*)?$`) // immutable

// serverOf returns the server with such a version().
func serverOf(said string) dialect.Server {
	server := dialect.Server{Said: said}
	release := numbered.FindStringSubmatch(said)
	switch {
	case strings.Contains(said, "MariaDB"): // Check looks at its release
	case strings.Contains(said, "TiDB"):
		server.Name, server.Why = "TiDB", "it has no SKIP LOCKED: use MariaDB"
	case release == nil:
		server.Name = "a server that is not known as MariaDB"
	case len(release[1]) == 1 && release[1] < "8":
		server.Name, server.Why = "MySQL", "MySQL 8 or newer is needed, for SKIP LOCKED and JSON_TABLE, or MariaDB"
	default:
		server.Name = "MySQL"
	}
	return server
}
