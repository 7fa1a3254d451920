package dialect

// Server is the server behind a database's protocol.
type Server struct {
	// Name is empty for a server that the library supports.
	Name string
	// Said is what its version() returns.
	Said string
	// Why is why nothing can run on it. It is empty if it was never tested.
	Why string
}
