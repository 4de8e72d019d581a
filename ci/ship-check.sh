#!/bin/bash
# ship-check.sh TESTED BUILT: fails unless two release tarballs have the same jobs, packages and licenses, by their fingerprints.
set -euo pipefail

# contents TARBALL: the fingerprints of everything in a release; its version and commit are left out.
contents() {
  tar -xzOf "$1" release.MF | grep -E '^ *(- )?(name|fingerprint):'
}
if ! difference=$(diff <(contents "$1") <(contents "$2")); then
  printf 'Error: %s is not what was tested (%s):\n%s\n' "$2" "$1" "$difference" >&2
  echo "Ship the commit that the candidate was built from, with the versions of Go and of Debian's packages" >&2
  echo "gcc, libc6-dev and libseccomp-dev that built it. An image that has them keeps them (ci/README.md)." >&2
  exit 1
fi
echo "ship-check: $2 has the jobs and packages that were tested"
