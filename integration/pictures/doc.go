// Command pictures takes those that docs/console.md and the README show: of the database that `asyncmonolith
// demo` makes, in headless Chromium.
package main
