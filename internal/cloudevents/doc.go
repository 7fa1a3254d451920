// Package cloudevents reads and writes CloudEvents 1.0 events, their JSON format, and the
// conventions of the library on top of them: headers and the names of consumers.
package cloudevents
