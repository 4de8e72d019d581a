package cloud

import "fmt"

// PortRange is a range of ports as Kubernetes writes it, such as 30000-32767.
type PortRange string

// Ports returns the first and the last port, if the range is known.
func (r PortRange) Ports() (first, last int, known bool) {
	_, err := fmt.Sscanf(string(r), "%d-%d", &first, &last)
	return first, last, err == nil
}
