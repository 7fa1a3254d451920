// Package cloudevents is the events of CloudEvents 1.0, and their JSON format.
//
// It knows no broker.
package cloudevents
