package ops

// Session is the service for one principal. It is safe for concurrent use.
type Session struct{ access }

// access is what a principal may do with a service.
type access struct {
	service *Service
	who     Principal
}

// Operations returns what the principal may do with operations: changes of many messages.
func (s *Session) Operations() *Operations { return &Operations{s.access} }
