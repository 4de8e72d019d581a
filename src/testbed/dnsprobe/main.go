// Command dnsprobe asks a DNS server for names until its input ends, and prints a Report as JSON. Only acceptance tests
// run it, in pods. Unlike a resolver, it asks once: a query without an answer is lost.
//
// Its arguments are the address of the server, how many queries it sends a second (0: as many as are answered, 32 at a
// time), and the names.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	timeout = 2 * time.Second // of a query
	atOnce  = 32              // queries, without a rate
)

// Report is what became of the queries.
type Report struct {
	Sent      int     `json:"sent"`
	Lost      int     `json:"lost"`
	PerSecond float64 `json:"per_second"`
	Slowest   float64 `json:"slowest_ms"` // of those that were answered
	// The first and the last query that were lost.
	First *Error `json:"first,omitempty"`
	Last  *Error `json:"last,omitempty"`
}

// Error is why a query was lost.
type Error struct {
	Time time.Time `json:"time"` // at which it was sent
	Text string    `json:"text"`
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("Error: usage: dnsprobe ADDRESS RATE NAME…")
	}
	rate, err := strconv.Atoi(os.Args[2])
	if err != nil || rate < 0 {
		log.Fatalf("Error: the rate is %q: it must be a number of queries a second, or 0", os.Args[2])
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := json.NewEncoder(os.Stdout).Encode(run(ctx, os.Args[1], rate, os.Args[3:])); err != nil {
		log.Fatal("Error: ", err)
	}
}

// run sends queries until the context ends, and waits for the answers.
func run(ctx context.Context, server string, rate int, names []string) Report {
	p := &probe{server: server}
	started := time.Now()
	var running sync.WaitGroup
	if rate == 0 {
		for first := range atOnce {
			running.Go(func() {
				for n := first; ctx.Err() == nil; n++ {
					p.ask(names[n%len(names)])
				}
			})
		}
	} else {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			running.Go(func() { p.ask(names[n%len(names)]) })
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	running.Wait()
	p.report.PerSecond = float64(p.report.Sent) / time.Since(started).Seconds()
	return p.report
}

type probe struct {
	server string
	mutex  sync.Mutex
	report Report
}

// ask sends one query from a socket of its own, as a resolver does.
func (p *probe) ask(name string) {
	sent := time.Now()
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	answer, _, err := (&dns.Client{Timeout: timeout}).Exchange(query, p.server)
	if err == nil && (answer.Rcode != dns.RcodeSuccess || len(answer.Answer) == 0) {
		err = fmt.Errorf("%s has %d addresses: %s", name, len(answer.Answer), dns.RcodeToString[answer.Rcode])
	}
	took := time.Since(sent)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.report.Sent++
	if err == nil {
		p.report.Slowest = max(p.report.Slowest, float64(took.Microseconds())/1000)
		return
	}
	p.report.Lost++
	lost := &Error{sent, err.Error()}
	if p.report.First == nil || sent.Before(p.report.First.Time) {
		p.report.First = lost
	}
	if p.report.Last == nil || sent.After(p.report.Last.Time) {
		p.report.Last = lost
	}
}
