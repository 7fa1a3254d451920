// Package contender holds the message systems that are measured, behind one
// interface: ours, River, watermill-sql, and the raw limit of the database.
//
// Every contender gets the same payload, the same number of connections and the
// same work, and keeps the driver settings that its own documentation asks for.
// It measures nothing, that is package measure.
package contender
