package mariadb

// Internal, since one of these servers can be run here.

import "testing"

func TestServersAreKnownByTheirVersion(t *testing.T) {
	t.Parallel()
	const unknown = "a server that is not known as MariaDB"
	for said, want := range map[string]struct {
		name    string
		refused bool
	}{
		"10.11.19-MariaDB-0+deb12u1": {}, "11.8.2-MariaDB-ubu2404": {}, "10.6.14-MariaDB-log": {}, "5.5.5-10.11.3-MariaDB-log": {},
		"10.5.29-MariaDB": {}, // Check refuses its release
		"8.0.42":          {"MySQL", false}, "8.4.5-log": {"MySQL", false}, "8.0.36-0ubuntu0.22.04.1": {"MySQL",
			false}, "8.0.36-28": {"MySQL", false}, "9.1.0": {"MySQL", false}, "10.0.1": {"MySQL", false},
		"5.7.44": {"MySQL", true}, "5.7.32-35": {"MySQL", true},
		"8.0.11-TiDB-v7.5.1": {"TiDB", true}, "5.7.25-TiDB-v6.1.0": {"TiDB", true},
		"8.0.30-Vitess": {unknown, false}, "": {unknown, false},
	} {
		if got := serverOf(said); got.Name != want.name || (got.Why != "") != want.refused || got.Said != said {
			t.Errorf("version() %q: got %+v, want name %q, refused %v", said, got, want.name, want.refused)
		}
	}
}
