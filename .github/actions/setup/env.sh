# shellcheck shell=bash
# To be sourced: give reconciler the variables that manifests name as ${env:NAME}, of VARIABLES: lines NAME=VALUE, or for
# a value of several lines NAME<<END, its lines, and END. And read the lines of ARGUMENTS, without blanks around them.
# Where VARIABLES cannot be read, `refused` says why.

# In a container the checkout may belong to another user.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="*"

# shellcheck disable=SC2034 # read by what sources this
refused=""
refuse_variables() {
  echo "::error title=env::$1; it is not shown, it may hold a secret"
  # shellcheck disable=SC2034
  refused="$1"
}

give_variable() {
  if [[ ! "$1" =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]]; then
    refuse_variables "a line of env is not NAME=VALUE"
    return
  fi
  local each
  while IFS= read -r each; do
    # As a command of GitHub takes it: a percent sign would else be read as the beginning of something.
    [[ -z "$each" ]] || echo "::add-mask::${each//%/%25}"
  done <<<"$2"
  export "$1=$2"
}

name="" end="" value=""
while IFS= read -r line; do
  line="${line%$'\r'}"
  if [[ -n "$end" ]]; then
    if [[ "$line" == "$end" ]]; then
      give_variable "$name" "${value%$'\n'}"
      end=""
    else
      value+="$line"$'\n'
    fi
    continue
  fi
  line="${line#"${line%%[![:blank:]]*}"}"
  [[ -n "$line" ]] || continue
  if [[ "$line" =~ ^([A-Za-z_][A-Za-z0-9_]*)'<<'(.+)$ ]]; then
    name="${BASH_REMATCH[1]}" end="${BASH_REMATCH[2]}" value=""
  elif [[ "$line" == *=* ]]; then
    give_variable "${line%%=*}" "${line#*=}"
  else
    refuse_variables "a line of env is not NAME=VALUE"
  fi
done <<<"$VARIABLES"
[[ -z "$end" ]] || refuse_variables "a value of env that has several lines does not end"

while IFS= read -r line; do
  line="${line%$'\r'}"
  line="${line#"${line%%[![:blank:]]*}"}"
  line="${line%"${line##*[![:blank:]]}"}"
  [[ -z "$line" ]] || options+=("$line")
done <<<"$ARGUMENTS"
