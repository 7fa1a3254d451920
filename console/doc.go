// Package console is a web console for operators, an http.Handler. It shows failures, pending and
// poisoned messages, and why a message waits. Operators can requeue, cancel, reschedule and discard
// messages, and pause consumers. Templates, stylesheet and script are embedded; the console works
// without the script.
//
// It shows the results of package ops and explains database errors. Permissions are those of the
// principal in package ops. It queries the database only while it handles a request.
package console
