// Package steps keeps the results of what a consumer has done for a message, so that a later attempt
// does not do it again.
package steps
