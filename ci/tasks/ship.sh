#!/bin/bash
# Uploads a final release to the blobstore of config/final.yml, commits what that wrote, and writes what the published release needs.
# The builds are reproducible: a final release whose jobs and packages are not those of the tested candidate is refused.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz branch=$PWD/branch shipped=$PWD/shipped published=$PWD/published
version=$(cat version/version)

fail() {
  echo "Error: $*" >&2
  exit 1
}

cd repository
# Without the last release, this one would upload archives again, and what it writes about them could not be merged.
for release in "$branch"/releases/kubernetes/kubernetes-*.yml; do
  file=${release#"$branch"/}
  if [[ -e $release && ! -e $file ]]; then
    fail "the branch has $file, which the commit of the candidate lacks. Ship a candidate that was built since" \
      "then; if only the GitHub release is missing, finish it by hand (ci/README.md, \"When ship fails\")."
  fi
done
notes=$(awk -v version="$version" '/^## / { inside = $2 == version; next } inside' CHANGELOG.md)
if [[ ! $notes =~ [^[:space:]] ]]; then
  fail "CHANGELOG.md of the candidate's commit has no section \"## $version\", or nothing in it: the notes of the" \
    "release would be empty. Commit one, and ship the candidate of that commit (docs/releasing.md)."
fi

(
  umask 077
  printf 'blobstore:\n  options:\n    access_key_id: "%s"\n    secret_access_key: "%s"\n' \
    "$BLOBSTORE_ACCESS_KEY_ID" "$BLOBSTORE_SECRET_ACCESS_KEY" >config/private.yml
)
trap 'rm -f config/private.yml' EXIT
make ship-check TESTED="$candidate"
make final-release VERSION="$version"

git add .final_builds releases config/blobs.yml
git -c user.name="$GIT_USER_NAME" -c user.email="$GIT_USER_EMAIL" commit --quiet --message "Release $version"
# Whoever checks the tag out gets what was built and tested, without commits that the branch has got since.
git tag "v$version"
git clone --quiet . "$shipped"

cp ".build/release/kubernetes-$version.tgz" "$published/"
echo "v$version" | tee "$published/tag" >"$published/name"
echo "$notes" >"$published/notes.md"
