#!/bin/bash
# slowest.sh LOG…: prints the ten tests of clusters and packages of tests that took longest, from the output of go test.
set -euo pipefail

awk '
  $1 == "---" && /^--- [A-Z]+: [^ ]+ \(/ { print substr($4, 2) + 0, $3 }
  ($1 == "ok" || $1 == "FAIL") && $3 ~ /^[0-9.]+s$/ { print $3 + 0, $2 }
' "$@" | sort -rn | head | awk '{ printf "  %5.0f s  %s\n", $1, $2 }'
