package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// BenchmarkStart measures how long it takes from the start of the command until its first row is there, and
// how large its binary is.
func BenchmarkStart(b *testing.B) {
	for name, dsn := range map[string]func() string{
		"postgres": func() string { return testdb.PostgresDSN(b) },
		"mariadb":  func() string { return urlOf(b, testdb.MariaDBDSN(b)) },
		"sqlite":   func() string { return "sqlite:" + filepath.Join(b.TempDir(), "test.db") },
	} {
		b.Run(name, func(b *testing.B) {
			s := &site{dsn: dsn()}
			migrate, _, _ := s.command(b.Context(), "migrate")
			testapp.OK(b, migrate.Run())
			var took []time.Duration
			for b.Loop() {
				took = append(took, s.firstRow(b))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-to-first-row")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-at-most")
			info := testapp.Must[os.FileInfo](b)(os.Stat(program))
			b.ReportMetric(float64(info.Size())/1e6, "MB")
		})
	}
}

// firstRow is how long status takes to write something.
func (s *site) firstRow(b *testing.B) time.Duration {
	b.Helper()
	c, _, _ := s.command(b.Context(), "status")
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	testapp.OK(b, c.Start())
	_, err = io.ReadFull(out, make([]byte, 1))
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	testapp.OK(b, c.Wait())
	return took
}
