package postgres

// Internal, since none of these servers but one can be run here: the texts are those that users
// and documents show.

import "testing"

func TestServersAreKnownByTheirVersion(t *testing.T) {
	t.Parallel()
	const unknown = "a server that is not known as PostgreSQL"
	for said, want := range map[string]struct {
		name    string
		refused bool
	}{
		// PostgreSQL, built by many.
		"PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit":                    {},
		"PostgreSQL 18.4 on x86_64-pc-linux-gnu, compiled by gcc (Ubuntu 7.5.0-3ubuntu1~18.04) 7.5.0, 64-bit":                                            {},
		"PostgreSQL 17.0 on x86_64-windows, compiled by msvc-19.41.34123, 64-bit":                                                                        {}, // as Meson builds it
		"PostgreSQL 13.4, compiled by Visual C++ build 1914, 64-bit":                                                                                     {},
		"PostgreSQL 17beta1 on x86_64-pc-linux-gnu, compiled by gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5), 64-bit":                                    {},
		"PostgreSQL 17.4 (EnterpriseDB Advanced Server 17.4.0) on x86_64-pc-linux-gnu, compiled by gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5), 64-bit": {},
		"PostgreSQL 16.13 on x86_64-pc-linux-gnu, compiled by Debian clang version 12.0.1, 64-bit":                                                       {}, // Cloud SQL, AlloyDB
		"PostgreSQL 12.4 on x86_64-pc-linux-gnu, compiled by Debian clang version 10.0.1 , 64-bit":                                                       {}, // Cloud SQL
		"PostgreSQL 11.7 on x86_64-pc-linux-gnu, compiled by gcc (GCC) 4.9.3, 64-bit":                                                                    {}, // Aurora
		"PostgreSQL 15.4 - Percona Distribution on x86_64-pc-linux-gnu, compiled by gcc (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0, 64-bit":                   {},
		"CockroachDB CCL v21.1.1 (x86_64-apple-darwin19, built 2021/05/24 15:00:00, go1.15.11)":                                                          {"CockroachDB", true},
		"CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)":                                                           {"CockroachDB", true},
		"CockroachDB OSS v20.1.15 (x86_64-unknown-linux-gnu, built 2021/04/26 16:11:58, go1.13.9)":                                                       {"CockroachDB", true},
		"PostgreSQL 14.1":                    {"Cloud Spanner", true},
		"Cloud Spanner PostgreSQL interface": {"Cloud Spanner", true},
		"PostgreSQL 11.2-YB-2.20.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 16.0.6 (https://github.com/yugabyte/llvm-project.git 1e6329f40e5c531c09ade7015278078682293ebd), 64-bit": {"YugabyteDB", false},
		"PostgreSQL 15.2-YB-2025.1.2.0-b0 on x86_64-pc-linux-gnu": {"YugabyteDB", false},
		// Untested servers.
		"PostgreSQL 16": {unknown, false},
		"PostgreSQL 9.4.26 (Greenplum Database 6.25.3 build dev-oss) on x86_64-pc-linux-gnu, compiled by gcc-11 (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0, 64-bit compiled on Jul 24 2024 13:29:56": {unknown, false},
		"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 (Red Hat 3.4.2-6.fc3), Redshift 1.0.12103":                                                             {unknown, false},
		"PostgreSQL 12.3, compiled by Visual C++ build 1914, 64-bit, QuestDB":                                                                                                                   {unknown, false},
		"PostgreSQL 13.14.0-RisingWave-2.1.0 (a8ea6e9)":                                                                                                                                         {unknown, false},
		"PostgreSQL 15.2-fork on x86_64-pc-linux-gnu, compiled by gcc, 64-bit":                                                                                                                  {unknown, false},
		"CrateDB 4.1.1 (built Built_on_Unknown/Unknown, Linux 4.4.0)":                                                                                                                           {unknown, false},
		"": {unknown, false},
	} {
		if got := serverOf(said); got.Name != want.name || (got.Why != "") != want.refused || got.Said != said {
			t.Errorf("version() %q: got %+v, want name %q, refused %v", said, got, want.name, want.refused)
		}
	}
}
