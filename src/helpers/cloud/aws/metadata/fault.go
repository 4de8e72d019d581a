package metadata

// Fault is a wrong or missing answer of instance metadata, described for operators.
type Fault struct {
	Kind  FaultKind
	Found string
}

// FaultKind is what is wrong with an answer.
type FaultKind int

func (f *Fault) Error() string { return f.Found }

// Temporary reports whether a fault may disappear by itself.
func (f *Fault) Temporary() bool {
	return f.Kind == Unreachable || f.Kind == NoReply || f.Kind == Server
}
