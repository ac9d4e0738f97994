# shellcheck shell=bash
# To be sourced: give reconciler the variables that manifests name as ${env:NAME}; lines NAME=VALUE in VARIABLES.
while IFS= read -r line; do
  [[ -n "$line" ]] || continue
  name="${line%%=*}"
  if [[ "$line" != *=* || ! "$name" =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]]; then
    echo "::error title=env::a line of env is not NAME=VALUE; it is not shown, it may hold a secret"
    exit 64
  fi
  value="${line#*=}"
  [[ -z "$value" ]] || echo "::add-mask::$value"
  export "$name=$value"
done <<<"$VARIABLES"
