package vsphere

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/node"
)

var _ cloud.Locator = (*Provider)(nil)

// NewLocator implements cloud.Locator.
func (p *Provider) NewLocator(cloudConfigFile string) node.Locator {
	return &locator{program: p.program(), file: cloudConfigFile, now: time.Now, turn: make(chan struct{}, 1)}
}

// loginPause is how long a refused login is not repeated. VMs ask to join every two seconds, and vCenter locks an
// account after a few refusals, by default after five in three minutes: for everybody who uses it, such as the CPI.
const loginPause = 10 * time.Minute

// locator has the program ask vCenter. A deploy with other credentials starts another one.
type locator struct {
	program program
	file    string
	now     func() time.Time

	// turn has one login at a time: of several at once, all would be refused before the first refusal is known. Who has
	// it may use what is below.
	turn chan struct{}
	// refused is why vCenter refused the last login, and until is when the next one may be tried.
	refused string
	until   time.Time
}

// Locate implements node.Locator.
func (l *locator) Locate(ctx context.Context, instance node.Instance) (node.Location, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return node.Location{}, fmt.Errorf("wait for searches for other VMs in vCenter: %w", ctx.Err())
	}
	if err := l.pausing(); err != nil {
		return node.Location{}, err
	}
	var location Location
	err := l.program.run(ctx, LocateCommand, Search{Instance: instance, File: l.file}, &location, slog.Default())
	if err != nil {
		return node.Location{}, err
	}
	if location.LoginRefused != "" {
		l.refused, l.until = location.LoginRefused, l.now().Add(loginPause)
		return node.Location{}, l.pausing()
	}
	if location.Refusal != "" {
		return node.Location{}, &node.Refusal{Reason: location.Refusal}
	}
	return node.Location{ProviderID: location.ProviderID}, nil
}

// pausing fails while no login is tried.
func (l *locator) pausing() error {
	if !l.now().Before(l.until) {
		return nil
	}
	return fmt.Errorf(
		"%s; not tried again before %s, since refusals lock the account: correct user and password in config of the "+
			"job cloud-provider, and deploy", l.refused, l.until.UTC().Format(time.RFC3339),
	)
}
