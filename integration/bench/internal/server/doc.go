// Package server is what measurements ask of the PostgreSQL server itself:
// fresh databases, the position in its log, and a snapshot that stays open.
//
// It changes no setting of the server.
package server
