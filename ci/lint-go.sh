#!/bin/bash
# Formatting, go vet and staticcheck for the Go code in src.
set -euo pipefail
cd "$(dirname "$0")/../src"

unformatted=$(gofmt -l .)
if [[ -n $unformatted ]]; then
  printf 'Error: not formatted; gofmt -w them:\n%s\n' "$unformatted" >&2
  exit 1
fi
echo "gofmt: all formatted"
go vet ./...
echo "go vet: nothing found"
tools=$PWD/../.build/bin
(cd tools && go build -o "$tools/" honnef.co/go/tools/cmd/staticcheck)
"$tools/staticcheck" ./...
echo "staticcheck: nothing found"
