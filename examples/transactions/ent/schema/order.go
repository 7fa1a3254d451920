// Package schema is what ent generates package ent from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order is the schema of the table orders.
type Order struct{ ent.Schema }

// Fields are the columns.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("id"), field.String("item"), field.Int("handled").Default(0)}
}
