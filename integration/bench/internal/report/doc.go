// Package report keeps what was measured and shows it: as a table, as one line
// per bar, as JSON and as plots. It measures nothing.
package report
