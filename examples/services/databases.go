package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
)

// databases are those of the services: addresses for them, and handles to look at the end.
type databases struct {
	ordersAt, shippingAt string
	orders, shipping     *bun.DB
	server               *bun.DB // where that of orders was made; nil for SQLite
	name                 string  // of it
}

// newDatabases names files in dir, or makes a database for orders on a PostgreSQL.
func newDatabases(ctx context.Context, dir, postgres string) (d *databases, err error) {
	d = &databases{ordersAt: filepath.Join(dir, "orders.db"), shippingAt: filepath.Join(dir, "shipping.db")}
	if postgres != "" {
		u, err := url.Parse(postgres)
		if err != nil {
			return nil, err
		}
		if d.server, err = service.Open(postgres); err != nil {
			return nil, err
		}
		d.name = "services_" + strings.ToLower(rand.Text()[:10])
		if _, err := d.server.ExecContext(ctx, "CREATE DATABASE "+d.name); err != nil {
			return nil, errors.Join(err, d.server.Close())
		}
		u.Path = "/" + d.name
		d.ordersAt = u.String()
	}
	d.orders, err = service.Open(d.ordersAt)
	if err == nil {
		d.shipping, err = service.Open(d.shippingAt)
	}
	if err != nil {
		return nil, errors.Join(err, d.remove(ctx))
	}
	return d, nil
}

// remove closes all, and removes what is not a file.
func (d *databases) remove(ctx context.Context) (err error) {
	for _, db := range []*bun.DB{d.orders, d.shipping} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if d.server != nil {
		_, dropped := d.server.ExecContext(ctx, "DROP DATABASE "+d.name+" WITH (FORCE)")
		err = errors.Join(err, dropped, d.server.Close())
	}
	return err
}

// kind is what orders runs on.
func (d *databases) kind() string {
	if d.server != nil {
		return "PostgreSQL"
	}
	return "SQLite"
}
