#!/bin/bash
# Runs shellcheck on every shell script of the repository, recognized by its first line. ERB templates are left out: they are
# shell scripts only after rendering.
set -euo pipefail

scripts=()
while IFS= read -r -d '' file; do
  [[ -f $file && ! -L $file && $file != *.erb ]] || continue
  IFS= read -r first <"$file" || true
  if [[ $first =~ ^#!.*[/\ ](ba|da)?sh( |$) ]]; then scripts+=("$file"); fi
done < <(git ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -path ./.build -prune -o -path ./.git -prune -o -type f -print0)
shellcheck "${scripts[@]}"
echo "shellcheck: ${#scripts[@]} scripts"
