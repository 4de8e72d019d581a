// machine says what keeps a lab from running on this machine, before anything is built for it.
package main

import (
	"fmt"
	"os"

	"kubernetes-release/testbed/lab/machine"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run() error {
	checkout := os.Args[1]
	m, err := machine.This(checkout)
	if err != nil {
		return err
	}
	problems, notes := m.Problems()
	for _, note := range notes {
		fmt.Println("machine: " + note)
	}
	for _, problem := range problems {
		fmt.Println("machine: " + problem)
	}
	if len(problems) > 0 {
		return fmt.Errorf("no lab can run on this machine: %d of the points above", len(problems))
	}
	fmt.Println("machine: a lab can run here")
	return nil
}
