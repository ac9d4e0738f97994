#!/usr/bin/env bash
# Write the plan into the pull request, where there is one that may be written to; or that there is none, and why.
set -euo pipefail

[[ "$COMMENT" == true ]] || exit 0
case "$GITHUB_EVENT_NAME" in
  pull_request | pull_request_target | issue_comment) ;;
  *) exit 0 ;;
esac
if [[ "$GITHUB_EVENT_NAME" == pull_request && "$HEAD_REPOSITORY" != "$GITHUB_REPOSITORY" ]]; then
  echo "The pull request is from a fork, whose token may not comment: the plan is in the summary of this job."
  exit 0
fi
options=()
[[ "$LABELS" != true ]] || options+=(--labels)
if [[ -s "$FOLDER/comment.md" ]]; then
  [[ -z "$PAGE" ]] || options+=(--page "$PAGE")
  exec reconciler comment "$FOLDER/comment.md" "${options[@]}"
fi
options+=(--workspace "$WORKSPACE")
[[ -z "$ENVIRONMENT" ]] || options+=(--environment "$ENVIRONMENT")
exec reconciler comment --failed "$FAILURE" "${options[@]}"
