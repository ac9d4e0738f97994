#!/usr/bin/env bash
# Compare once; the issue, the message and the page are of the same look. The last step of the action fails, not this.
set -uo pipefail

folder="$(mktemp -d "$RUNNER_TEMP/reconciler-drift-XXXXXX")"
# Names of artifacts have no slashes.
safe_name="${ARTIFACT//\//--}"
safe_name="${safe_name//[^A-Za-z0-9._-]/-}"
# What stands here holds where the steps below do not come to their end.
{
  echo "failure=nothing was compared, see the log"
  echo "status=1"
  echo "folder=$folder"
  echo "artifact=$safe_name"
} >>"$GITHUB_OUTPUT"
options=()
[[ -z "$ENVIRONMENT" ]] || options+=(--environment "$ENVIRONMENT")
if [[ "$ISSUE" == true ]]; then
  options+=(--issue)
  while IFS= read -r label; do
    [[ -z "$label" ]] || options+=(--issue-label "$label")
  done <<<"$LABELS"
fi
[[ -z "$RECONCILER_WEBHOOK" ]] || options+=(--webhook RECONCILER_WEBHOOK)

# shellcheck source-path=SCRIPTDIR source=../setup/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/env.sh"
[[ -z "$refused" ]] || exit 64

cd "$WORKSPACE" || exit
status=0
reconciler drift "${options[@]}" \
  --report "markdown=$folder/drift.md" \
  --report "html=$folder/drift.html" \
  --report "outputs=$folder/outputs.txt" || status=$?

[[ ! -s "$folder/outputs.txt" ]] || cat "$folder/outputs.txt" >>"$GITHUB_OUTPUT"
echo "status=$status" >>"$GITHUB_OUTPUT"
[[ ! -s "$folder/drift.md" ]] || cat "$folder/drift.md" >>"$GITHUB_STEP_SUMMARY"
