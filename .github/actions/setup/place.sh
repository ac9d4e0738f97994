#!/usr/bin/env bash
# Name the folder of the installation, and the key of its cache: a digest of all that decides what is installed.
set -euo pipefail

folder="$RUNNER_TEMP/reconciler"
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
echo "folder=$folder" >>"$GITHUB_OUTPUT"
# An earlier step of the job has installed it, or the package has no version: then nothing is cached.
if [[ -d "$folder" || ( -n "$PACKAGE" && "$PACKAGE" != *==* ) ]]; then
  exit 0
fi
digest="$({
  printf '%s\n' "$folder" "$PACKAGE" "$EXTRAS" "$(uname -sm)" "$(command -v python3)" "$(python3 --version)"
  cd "$root"
  cat .github/actions/setup/install.sh requirements.lock
  [[ -n "$PACKAGE" ]] || find pyproject.toml README.md reconciler schemas -type f -not -name '*.pyc' -print0 | sort -z | xargs -0 cat
} | python3 -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')"
echo "key=reconciler-$digest" >>"$GITHUB_OUTPUT"
