// Package names knows the names under which messages of a consumer may be stored: see bus.Aliases.
package names
