// Package console is a handler of net/http with pages that show messages and change them: what fails, since when,
// and why a message waits. It is made of templates, one stylesheet and one script, all embedded, and works without
// the script.
//
// It shows what package ops returns, and what an error of the database means. It allows what the principal may do
// there. It queries the database only for requests.
package console
