package cli_test

// goldenCase is a run of the command, and what it exits with. ID, MAIL and OPERATION stand for ids.
type goldenCase struct {
	name string
	code int
	args []string
}

// goldenCases are runs on a filled database, one after the other.
func goldenCases() []goldenCase {
	return []goldenCase{
		{"status", 0, []string{"status"}},
		{"status-content", 0, []string{"status", "--show-payloads"}},
		{"status-check", 6, []string{"status", "--check"}},
		{"consumers-list", 0, []string{"consumers", "list"}},
		{"consumers-schema", 0, []string{"consumers", "schema", "mail"}},
		{"consumers-schema-none", 3, []string{"consumers", "schema", "stock"}},
		{"asyncapi", 0, []string{"asyncapi", "--title", "Shop"}},
		{"consumers-pause-asked", 4, []string{"consumers", "pause", "mail"}},
		{"consumers-pause", 0, []string{"consumers", "pause", "mail", "--yes", "--reason", "it burns"}},
		{"explain-paused", 0, []string{"explain", "MAIL"}},
		{"consumers-paused", 0, []string{"consumers", "list"}},
		{"consumers-resume", 0, []string{"consumers", "resume", "mail", "--yes", "--reason", "it is out"}},
		{"messages-list", 0, []string{"messages", "list"}},
		{"messages-list-page", 0, []string{"messages", "list", "--consumer", "stock", "--limit", "1"}},
		{"messages-get", 0, []string{"messages", "get", "ID"}},
		{"messages-get-content", 0, []string{"messages", "get", "ID", "--show-payloads"}},
		{"messages-find", 3, []string{"messages", "find", "--header", "tenant=acme"}},
		{"messages-cancel-asked", 4, []string{"messages", "cancel", "ID", "999999"}},
		{"messages-cancel-all-asked", 4, []string{"messages", "cancel", "--consumer", "mail"}},
		{"messages-run-now", 5, []string{"messages", "run-now", "ID", "999999", "--yes", "--reason", "why not"}},
		{"messages-reschedule", 0, []string{"messages", "reschedule", "ID", "--at", "2030-01-01", "--yes", "--reason", "later"}},
		{"explain", 5, []string{"explain", "ID", "999999"}},
		{"explain-ready", 0, []string{"explain", "MAIL"}},
		{"explain-poisoned", 0, []string{"explain", "4"}},
		{"explain-message", 0, []string{"explain", "MESSAGE"}},
		{"explain-trace", 3, []string{"explain", "0af7651916cd43dd8448eb211c80319c"}},
		{"explain-key", 0, []string{"explain", "--consumer", "stock", "--key", "order-17"}},
		{"explain-key-none", 3, []string{"explain", "--key", "no such key"}},
		{"explain-odd", 2, []string{"explain", "order-17"}},
		{"explain-none", 3, []string{"explain", "999999"}},
		{"messages-list-key", 0, []string{"messages", "list", "--consumer", "stock", "--key", "order-17"}},
		{"messages-list-none", 0, []string{"messages", "list", "--crashed"}},
		{"messages-list-mistyped", 2, []string{"messages", "list", "--consumer", "stok"}},
		{"messages-keys", 0, []string{"messages", "blocked-keys"}},
		{"poisoned-list-error", 0, []string{"poisoned", "list", "--error", `no "luck"`, "--show-payloads"}},
		{"poisoned-list-sought", 0, []string{"poisoned", "list", "--error", "attempt 5 of"}},
		{"poisoned-list-key", 0, []string{"poisoned", "list", "--key", "order-17"}},
		{"poisoned-groups", 0, []string{"poisoned", "groups"}},
		{"poisoned-groups-content", 0, []string{"poisoned", "groups", "--show-payloads"}},
		{"poisoned-list", 0, []string{"poisoned", "list"}},
		{"poisoned-list-page", 0, []string{"poisoned", "list", "--consumer", "mail", "--limit", "2", "--show-payloads"}},
		{"poisoned-get", 0, []string{"poisoned", "get", "3"}},
		{"poisoned-get-content", 0, []string{"poisoned", "get", "3", "--show-payloads"}},
		{"poisoned-export", 0, []string{"poisoned", "export", "--consumer", "stock", "--show-payloads", "--reason", "a look"}},
		{"requeue-asked", 4, []string{"requeue", "1", "2"}},
		{"requeue-all-asked", 4, []string{"requeue", "--consumer", "mail", "--fingerprint", "1aaaaaaaaaaaaaaaa"}},
		{"requeue", 5, []string{"requeue", "1", "999999", "--yes", "--reason", "fixed"}},
		{"discard-asked", 4, []string{"discard", "2"}},
		{"discard", 0, []string{"discard", "2", "--yes", "--reason", "void"}},
		{"discard-all", 0, []string{"discard", "--consumer", "mail", "--undo-window", "1h", "--yes", "--reason", "void"}},
		{"schedules-list", 0, []string{"schedules", "list"}},
		{"schedules-next", 0, []string{"schedules", "next", "nightly"}},
		{"schedules-run", 0, []string{"schedules", "run", "nightly", "--yes", "--reason", "now"}},
		{"schedules-update-asked", 4, []string{"schedules", "update", "nightly", "--expression", "0 4 29 2 *"}},
		{"schedules-update-wrong", 2, []string{"schedules", "update", "nightly", "--zone", "Mars/Olympus"}},
		{"schedules-update-none", 2, []string{"schedules", "update", "nightly"}},
		{"schedules-update", 0, []string{"schedules", "update", "nightly", "--expression", "0 4 29 2 *", "--yes", "--reason", "leap"}},
		{"schedules-pause-asked", 4, []string{"schedules", "pause", "nightly"}},
		{"schedules-pause", 0, []string{"schedules", "pause", "nightly", "--yes", "--reason", "not now"}},
		{"schedules-resume", 0, []string{"schedules", "resume", "1", "--yes", "--reason", "now"}},
		{"schedules-delete", 0, []string{"schedules", "delete", "hourly", "--yes", "--reason", "too often"}},
		{"processes", 0, []string{"processes"}},
		{"operations-list", 0, []string{"operations", "list"}},
		{"operations-rate-asked", 4, []string{"operations", "set-rate", "OPERATION", "500"}},
		{"operations-rate", 0, []string{"operations", "set-rate", "OPERATION", "500", "--yes", "--reason", "faster"}},
		{"operations-show", 0, []string{"operations", "show", "OPERATION"}},
		{"operations-undo", 0, []string{"operations", "undo", "OPERATION"}},
		{"operations-watch", 5, []string{"operations", "watch", "OPERATION"}},
		{"operations-stop", 1, []string{"operations", "stop", "OPERATION"}},
		{"operations-rate-done", 1, []string{"operations", "set-rate", "OPERATION", "500", "--yes", "--reason", "faster"}},
		{"operations-continue", 4, []string{"operations", "resume", "OPERATION"}},
		{"migrate", 0, []string{"migrate"}},
	}
}

// goldenProjections are runs on one with projections.
func goldenProjections() []goldenCase {
	reason := []string{"--yes", "--reason", "fixed"}
	return []goldenCase{
		{"projections-list", 0, []string{"projections", "list"}},
		{"projections-list-content", 0, []string{"projections", "list", "--show-payloads"}},
		{"projections-check", 6, []string{"status", "--check"}},
		{"projections-parked", 0, []string{"projections", "parked", "totals", "--version", "1"}},
		{"projections-parked-content", 0, []string{"projections", "parked", "totals", "--version", "1", "--show-payloads"}},
		{"projections-parked-none", 0, []string{"projections", "parked", "totals", "--version", "2"}},
		{"projections-several", 2, []string{"projections", "resume", "totals"}},
		{"projections-mistyped", 3, []string{"projections", "resume", "total"}},
		{"projections-resume-asked", 4, []string{"projections", "resume", "totals", "--version", "1"}},
		{"projections-resume", 0, append([]string{"projections", "resume", "totals", "--version", "1"}, reason...)},
		{"projections-retry", 0, append([]string{"projections", "retry", "totals", "--version", "1"}, reason...)},
		{"projections-rebuild-asked", 4, []string{"projections", "rebuild", "totals", "--version", "2"}},
		{"projections-rebuild", 0, append([]string{"projections", "rebuild", "totals", "--version", "2"}, reason...)},
		{"projections-promote", 0, append([]string{"projections", "promote", "totals", "--version", "2"}, reason...)},
		{"projections-operations", 0, []string{"operations", "list"}},
	}
}
