#!/bin/bash
# Uploads a final release to the blobstore of config/final.yml, commits what that wrote, and writes what the published release needs.
# The builds are reproducible: a final release whose jobs and packages are not those of the tested candidate is refused.
set -euo pipefail
export GOCACHE=$PWD/go-cache/build GOMODCACHE=$PWD/go-cache/modules
candidate=$PWD/candidate/kubernetes.tgz shipped=$PWD/shipped published=$PWD/published
version=$(cat version/version)

cd repository
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
sed -n "/^## $version\b/,/^## /{/^## /!p}" CHANGELOG.md >"$published/notes.md"
