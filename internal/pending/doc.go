// Package pending reads pending messages, and what processes report of them, for the console and
// the command: what they show beyond admin.Client. Its errors have the prefix of package admin.
package pending
