#!/bin/bash
# go-build.sh STEP FOLDER PACKAGE…: builds programs from src into a folder, and shows how far it is.
set -euo pipefail
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/../src"
if [[ ! -e ../.build/gobuild ]]; then
  echo "$1: compiling the program that shows progress; the first time takes half a minute"
fi
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../.build/gobuild ./cmd/gobuild
exec ../.build/gobuild "$1" "$folder" "${@:3}"
