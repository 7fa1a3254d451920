package top

// The views, in the order of their keys.
const (
	consumers = iota
	failures
	processes
	views
)

// selection is the current view, and the chosen line of each view.
type selection struct {
	view   int
	chosen [views]string // keys of lines
	line   [views]int    // their indexes
}

// move chooses another line of the current view.
func (s *selection) move(by int, keys []string) {
	if len(keys) == 0 {
		return
	}
	s.line[s.view] = min(max(s.line[s.view]+by, 0), len(keys)-1)
	s.chosen[s.view] = keys[s.line[s.view]]
}

// follow keeps the same lines chosen in new data.
func (s *selection) follow(keysOf func(view int) []string) {
	for view := range views {
		keys := keysOf(view)
		s.line[view] = min(s.line[view], max(len(keys)-1, 0))
		for i, key := range keys {
			if key == s.chosen[view] {
				s.line[view] = i
			}
		}
		if len(keys) > 0 {
			s.chosen[view] = keys[s.line[view]]
		}
	}
}
