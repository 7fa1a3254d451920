// Package examples holds runnable programs, each in a folder of its own. They
// may import only the public packages of the library.
package examples
