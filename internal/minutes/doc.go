// Package minutes reads how many messages of each consumer ran in each minute, for the overview, the
// console and the command. Its errors have the prefix of package admin.
package minutes
