// Package paging turns the place where a page of a listing begins into a text that may
// travel in a link, and back.
package paging
