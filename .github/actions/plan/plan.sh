#!/usr/bin/env bash
# Plan once, in all forms that the steps after this one need. The step does not fail: the last one of the action does,
# after the comment. One of an earlier commit must not stay.
set -uo pipefail

folder="$(mktemp -d "$RUNNER_TEMP/reconciler-plan-XXXXXX")"
# Names of artifacts have no slashes.
safe_name="${ARTIFACT//\//--}"
safe_name="${safe_name//[^A-Za-z0-9._-]/-}"
# What stands here holds where the steps below do not come to their end.
{
  echo "failure=the plan was not made, see the log"
  echo "status=1"
  echo "folder=$folder"
  echo "artifact=$safe_name"
} >>"$GITHUB_OUTPUT"
options=(--fail-on "$FAIL_ON")
[[ -z "$ENVIRONMENT" ]] || options+=(--environment "$ENVIRONMENT")

# shellcheck source-path=SCRIPTDIR source=../setup/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup/env.sh"
if [[ -n "$refused" ]]; then
  {
    echo "failure=$refused"
    echo "status=64"
  } >>"$GITHUB_OUTPUT"
  exit 0
fi

cd "$WORKSPACE" || exit
status=0
reconciler plan "${options[@]}" --out "$folder/plan.json" \
  --report "markdown=$folder/comment.md" \
  --report "html=$folder/plan.html" \
  --report "sarif=$folder/plan.sarif" \
  --report "outputs=$folder/outputs.txt" || status=$?

# Where it was killed there is nothing but what was said above.
[[ ! -s "$folder/outputs.txt" ]] || cat "$folder/outputs.txt" >>"$GITHUB_OUTPUT"
echo "status=$status" >>"$GITHUB_OUTPUT"
[[ ! -s "$folder/comment.md" ]] || cat "$folder/comment.md" >>"$GITHUB_STEP_SUMMARY"
