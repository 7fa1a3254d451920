// Package console is a handler of net/http with pages at which people see what their messages do, and
// change it: what fails, since when, and why something waits. It is made of templates, one stylesheet and one
// script, all embedded, and works without the script.
//
// It shows nothing that package ops does not return, except what an error of the database means,
// and allows nothing that the principal may not do there. It asks the database only while a page is
// open.
package console
