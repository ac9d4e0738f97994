#!/usr/bin/env bash
# Do what was approved. A job that is cancelled hands the signal on: reconciler ends in order, and frees its lease.
set -uo pipefail

options=(--lock-timeout "$LOCK_TIMEOUT")
if [[ "$APPROVED_IN" == none ]]; then options+=(--yes); else options+=(--approved-in "$APPROVED_IN"); fi
[[ -z "$ENVIRONMENT" ]] || options+=(--environment "$ENVIRONMENT")

# shellcheck source-path=SCRIPTDIR source=../setup/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/env.sh"
[[ -z "$refused" ]] || exit 64

cd "$WORKSPACE" || exit
log="$(mktemp "$RUNNER_TEMP/reconciler-apply-XXXXXX")"
reconciler apply "${options[@]}" > >(tee "$log") 2> >(tee -a "$log.errors" >&2) &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' INT TERM
status=0
wait "$child" || status=$?
# A signal ends the wait, not the run: what it says at its end is its status.
while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
wait "$child" && status=0 || status=$?

echo "status=$status" >>"$GITHUB_OUTPUT"
result="exit code $status"
[[ "$status" != 0 ]] || result="it is done"
{
  echo "### Apply of \`${WORKSPACE//\`/}\`${ENVIRONMENT:+ in \`${ENVIRONMENT//\`/}\`}: $result"
  echo
  echo '~~~~~~~~'
  tail -n 100 "$log" | cut -c 1-500
  [[ ! -s "$log.errors" ]] || tail -n 20 "$log.errors" | cut -c 1-500
  echo '~~~~~~~~'
} >>"$GITHUB_STEP_SUMMARY"
exit "$status"
