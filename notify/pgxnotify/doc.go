// Package pgxnotify hears PostgreSQL's notifications with pgx, for package notify.
// It is a module of its own, so that the library itself depends on no driver.
//
//	listener := pgxnotify.FromDB(db.DB) // db is the application's *bun.DB
//	notifier, err := notify.NewNotifier(db, registry, notify.NotifierConfig{Listener: listener})
//
// It sends nothing and decides nothing.
package pgxnotify
