package mariadb

// Internal, since no server of every version and with every setting is at hand.

import (
	"errors"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

func TestMariaDBVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"10.11.19-MariaDB-0+deb12u1": true, "10.6.0-MariaDB": true, "11.8.2-MariaDB-ubu2404": true, "5.5.5-10.11.3-MariaDB-log": true,
		"10.5.29-MariaDB": false, "5.5.5-10.5.29-MariaDB": false, "8.0.42": true, "8.4.5-log": true, "5.7.44": false, "": false,
	} {
		if got := knows(version); got != want {
			t.Errorf("version %q: got %v, want %v", version, got, want)
		}
	}
}

func TestMariaDBMistakes(t *testing.T) {
	t.Parallel()
	sound := map[string]string{"version": "10.11.19-MariaDB", "sql_mode": "STRICT_TRANS_TABLES", "read_only": "OFF", "log_bin": "ON",
		"binlog_format": "MIXED",
		"wsrep_on":      "OFF", "character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "character_set_results": "utf8mb4",
		"max_allowed_packet": "16777216", "autocommit": "ON", "completion_type": "NO_CHAIN", "sql_safe_updates": "OFF",
		"foreign_key_checks": "ON"}
	if mistakes := settingMistakes(sound); len(mistakes) > 0 {
		t.Fatalf("sound settings: got %v, want no mistakes", mistakes)
	}
	for name, want := range map[string][2]string{
		"version": {"10.5.1-MariaDB", "10.6"}, "sql_mode": {"", "STRICT_TRANS_TABLES"}, "read_only": {"ON",
			"primary"}, "binlog_format": {"STATEMENT", "ROW"},
		"wsrep_on": {"ON", "Galera"}, "character_set_client": {"latin1", "utf8mb4"}, "max_allowed_packet": {"1048576",
			"16777216"}, "autocommit": {"OFF", "autocommit"},
		"character_set_connection": {"latin1", "utf8mb4"}, "character_set_results": {"latin1", "utf8mb4"}, "completion_type": {"CHAIN",
			"NO_CHAIN"}, "sql_safe_updates": {"ON", "sql_safe_updates"}, "foreign_key_checks": {"OFF", "foreign_key_checks"},
	} {
		was := sound[name]
		sound[name] = want[0]
		if mistakes := settingMistakes(sound); len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), want[1]) {
			t.Errorf("%s %q: got %v, want one mistake that speaks of %s", name, want[0], mistakes, want[1])
		}
		sound[name] = was
	}
}

// MySQLError has the fields of go-sql-driver's.
type MySQLError struct {
	Number   uint16
	SQLState [5]byte
}

func (*MySQLError) Error() string { return "Error" }

func TestMySQLErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		number                                                      uint16
		state                                                       string
		conflict, lockTimeout, unavailable, doubtful, refused, gone bool
	}{
		{1213, "40001", true, false, false, false, false, false},
		{1205, "HY000", false, true, false, false, false, false},
		{1020, "HY000", true, false, false, false, false, false},
		{1040, "08004", false, false, true, true, false, false},
		{1053, "08S01", false, false, true, true, false, false},
		{1290, "HY000", false, false, true, true, false, false},
		{1114, "HY000", false, false, true, false, false, false},
		{1030, "HY000", false, false, true, false, false, false},
		{1203, "42000", false, false, true, false, false, false},
		{1206, "HY000", false, false, true, false, false, false},
		{1226, "42000", false, false, true, false, false, false},
		{1406, "22001", false, false, false, false, true, false},
		{1062, "23000", false, false, false, false, true, false},
		{1146, "42S02", false, false, false, false, false, true},
		{1064, "42000", false, false, false, false, false, false},
	} {
		inner := &MySQLError{Number: test.number}
		copy(inner.SQLState[:], test.state)
		err := errors.Join(errors.New("beside"), inner)
		got := [...]bool{dberr.IsConflict(err), dberr.IsLockTimeout(err), dberr.IsUnavailable(err), dberr.IsConnectionDoubtful(err),
			dberr.IsRefused(err), dberr.IsMissingTable(err)}
		if want := [...]bool{test.conflict, test.lockTimeout, test.unavailable, test.doubtful, test.refused, test.gone}; got != want {
			t.Errorf("error %d (%s): got %v, want %v", test.number, test.state, got, want)
		}
	}
}
