// Package console is a handler of net/http with pages that show messages and change them: what
// fails, since when, and why a message waits. It is made of templates, one stylesheet and one
// script, all embedded, and works without the script.
//
// It shows the results of package ops and explains database errors. It allows what the principal
// may do there. It queries the database only while it handles a request.
package console
