// Package remote runs commands in a machine without a network, through a pair of pipes such as a serial port. Both ends
// write JSON, one message a line.
package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// message is what either end writes: the caller a script, the machine its output and at last its exit code. The first
// that a machine writes says that it has booted.
type message struct {
	ID     int    `json:"id,omitempty"`
	Script string `json:"script,omitempty"`
	Output string `json:"output,omitempty"`
	Exit   *int   `json:"exit,omitempty"`
	Booted bool   `json:"booted,omitempty"`
}

// Serve runs the scripts that it reads from port, each by /bin/sh and at the same time as others, until port ends.
func Serve(port io.ReadWriter) error {
	w := &writer{encoder: json.NewEncoder(port)}
	w.write(message{Booted: true})
	lines := bufio.NewReader(port)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading commands: %w", err)
		}
		var request message
		if json.Unmarshal([]byte(line), &request) == nil && request.ID != 0 {
			go serve(request, w)
		}
	}
}

func serve(request message, w *writer) {
	cmd := exec.Command("/bin/sh", "-c", request.Script)
	cmd.Stdout = output{request.ID, w}
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	code := 0
	if err := cmd.Run(); err != nil {
		if code = cmd.ProcessState.ExitCode(); code <= 0 {
			code = 255
			w.write(message{ID: request.ID, Output: err.Error() + "\n"})
		}
	}
	w.write(message{ID: request.ID, Exit: &code})
}

type writer struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func (w *writer) write(m message) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	_ = w.encoder.Encode(m) // nobody could be told
}

// output sends what is written to it as the output of a script.
type output struct {
	id int
	w  *writer
}

func (o output) Write(content []byte) (int, error) {
	o.w.write(message{ID: o.id, Output: string(content)})
	return len(content), nil
}

// Client is the caller's end.
type Client struct {
	requests *writer
	mutex    sync.Mutex
	last     int
	waiting  map[int]chan message
	booted   chan struct{} // closed when the machine has booted or ended
	ended    error
}

// NewClient returns the caller's end of a port.
func NewClient(port io.ReadWriter) *Client {
	c := &Client{
		requests: &writer{encoder: json.NewEncoder(port)}, waiting: map[int]chan message{}, booted: make(chan struct{}),
	}
	go c.receive(port)
	return c
}

func (c *Client) receive(port io.Reader) {
	lines := bufio.NewReader(port)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			c.end(err)
			return
		}
		var m message
		if json.Unmarshal([]byte(line), &m) != nil {
			continue
		}
		c.mutex.Lock()
		if m.Booted {
			c.markBooted()
		}
		answer := c.waiting[m.ID]
		c.mutex.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

func (c *Client) end(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ended = fmt.Errorf("the machine has ended: %w", err)
	for id, answer := range c.waiting { // no answer can come
		close(answer)
		delete(c.waiting, id)
	}
	c.markBooted()
}

func (c *Client) markBooted() {
	select {
	case <-c.booted:
	default:
		close(c.booted)
	}
}

// AwaitBoot waits until the machine has booted.
func (c *Client) AwaitBoot(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("the machine has not booted: %w", context.Cause(ctx))
	case <-c.booted:
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.ended
}

// Run runs a script in the machine, writes its output to out, and returns its exit code.
func (c *Client) Run(ctx context.Context, script string, out io.Writer) (int, error) {
	answers := make(chan message, 1024)
	c.mutex.Lock()
	if c.ended != nil {
		defer c.mutex.Unlock()
		return 0, c.ended
	}
	c.last++
	id := c.last
	c.waiting[id] = answers
	c.mutex.Unlock()
	c.requests.write(message{ID: id, Script: script})
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the script has not ended: %w", context.Cause(ctx))
		case answer, open := <-answers:
			switch {
			case !open:
				return 0, errors.New("the machine has ended while the script ran")
			case answer.Exit != nil:
				c.mutex.Lock()
				delete(c.waiting, id)
				c.mutex.Unlock()
				return *answer.Exit, nil
			}
			if _, err := io.WriteString(out, answer.Output); err != nil {
				return 0, err
			}
		}
	}
}
