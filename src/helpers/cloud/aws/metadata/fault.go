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

// The kinds of faults.
const (
	Unreachable FaultKind = iota // nothing answers
	// NoReply: connections are accepted but replies are lost, for example because the hop limit is too low.
	NoReply
	Disabled    // 403
	NoTokens    // the endpoint does not support IMDSv2
	SwitchedOff // by the environment of this process
	NotFound    // 404
	Server      // any other status
	Malformed   // an answer that cannot be decoded
)
