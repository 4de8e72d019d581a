package awssim

// WatchMounts looks at volumes and mounts once, as the simulator does at intervals.
func WatchMounts(s *Simulator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	s.watchMounts()
}
