// Package overview holds the summary of a database that package ops makes and package operator
// returns, and its cache. It reads nothing from the database.
package overview
