package awssim

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/store"
)

// New starts a simulation of the world. If the state file exists, the simulation resumes from it and ignores world. The
// caller must call Close.
func New(world *store.World, o Options) (*Simulator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Plumbing == nil {
		o.Plumbing = forward.NoPlumbing{}
	}
	if o.Disks == nil {
		o.Disks = store.NoDisks{}
	}
	if resumed, err := loadState(o.StateFile); err != nil {
		return nil, err
	} else if resumed != nil {
		o.Log.Info("resuming from the state file; ignoring the world file", "state", o.StateFile)
		world = resumed
	}
	if world == nil {
		return nil, errors.New("neither a world nor a state file to resume from")
	}
	world, err := world.Clone()
	if err != nil {
		return nil, err
	}
	if len(world.Secret) == 0 {
		world.Secret = make([]byte, 32)
		rand.Read(world.Secret)
	}
	record, err := newRecorder(o.RecordFile)
	if err != nil {
		return nil, err
	}
	s := &Simulator{
		options: o,
		log:     o.Log,
		engine:  forward.New(o.Plumbing, o.Log),
		record:  record,
		world:   world,
		closing: make(chan struct{}),
		objects: map[string][]byte{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.commit(); err != nil {
		return nil, errors.Join(err, s.engine.Close(), record.close())
	}
	go s.settleAlways()
	return s, nil
}

func loadState(path string) (*store.World, error) {
	if path == "" {
		return nil, nil
	}
	world, err := store.LoadWorld(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return world, err
}

// Close stops all load balancers and removes their addresses. It keeps the state file. It must be called once.
func (s *Simulator) Close() error {
	close(s.closing)
	s.mu.Lock() // a last change of a volume is written
	defer s.mu.Unlock()
	return errors.Join(s.engine.Close(), s.record.close())
}
