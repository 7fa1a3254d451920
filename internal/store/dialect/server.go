package dialect

// Server is what answers behind a database's protocol.
type Server struct {
	// Name is empty for a server that the library is made for.
	Name string
	// Said is what its version() returns.
	Said string
	// Why tells why nothing can run on it. It is empty where nobody has tried.
	Why string
}
