// Package console is a web console for messages: an http.Handler that shows what fails, since when
// and why a message waits, and lets operators change it. It is made of templates, one stylesheet
// and one script, all embedded, and works without the script.
//
// It shows the results of package ops and explains database errors. Permissions are those of the
// principal in package ops. It queries the database only while it handles a request.
package console
