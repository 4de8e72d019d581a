#!/bin/bash
# go-build.sh STEP FOLDER MODULE COMMAND…: builds programs of src/MODULE/cmd into a folder, and shows how far it is.
set -euo pipefail
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/../src"
build=$PWD/../.build
if [[ ! -e $build/gobuild ]]; then
  echo "$1: compiling the program that shows progress; the first time takes half a minute"
fi
(cd release && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$build/gobuild" ./cmd/gobuild)
cd "$3"
exec "$build/gobuild" "$1" "$folder" "${@:4}"
