package console

import "slices"

// suggestions are values that a form offers, besides any that are typed: those of the overview, and
// the keys of the messages shown.
type suggestions struct{ Consumers, PayloadTypes, Keys []string }

func (s *suggestions) addKey(key string) {
	if key != "" && !slices.Contains(s.Keys, key) {
		s.Keys = append(s.Keys, key)
	}
}

func (s *suggestions) load(r *request) error {
	o, err := r.overview()
	s.Consumers = queues(o.Queues).names()
	for _, p := range o.Processes {
		for _, c := range p.Consumers {
			s.PayloadTypes = append(s.PayloadTypes, c.PayloadTypes...)
		}
	}
	slices.Sort(s.PayloadTypes)
	s.PayloadTypes = slices.Compact(s.PayloadTypes)
	return err
}
