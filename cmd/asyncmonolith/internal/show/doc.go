// Package show writes what people read: tables on a terminal, and JSON, one value in each line, for
// programs. What is stored in a database may be anything: what a terminal would take for a command is
// shown escaped.
package show
