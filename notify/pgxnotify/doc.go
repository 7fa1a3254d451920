// Package pgxnotify listens for PostgreSQL notifications with pgx, for package notify. It is a
// module of its own, so that the library depends on no driver.
//
//	listener := pgxnotify.FromDB(db.DB) // db is the application's *bun.DB
//	notifier, err := notify.NewNotifier(db, registry, notify.NotifierConfig{Listener: listener})
package pgxnotify
