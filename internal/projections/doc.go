// Package projections shows the progress of the projections of all programs, without their
// functions, for package ops, the console and the command. Its errors have the prefix of package
// projection.
package projections
