// Program linked is the smallest that holds a module of others.
package main

import "golang.org/x/sync/errgroup"

func main() { new(errgroup.Group).SetLimit(1) }
