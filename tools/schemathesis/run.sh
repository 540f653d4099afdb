#!/usr/bin/env bash
# Sends what the OpenAPI document allows, and what it does not, to a server of the demo model, and compares the answers with
# the document (https://schemathesis.readthedocs.io). Installs schemathesis beside the build's outputs at first. Options go
# to `schemathesis run`, such as --max-examples 200 or --include-operation-id createFile.
set -euo pipefail
cd "$(dirname "$0")/../.."

deno=${DENO:-deno}
venv=${SCHEMATHESIS_VENV:-.cache/schemathesis}
if [ ! -x "$venv/bin/schemathesis" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q schemathesis==4.32.5
fi

data=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || { kill -KILL -- "-$server" && wait "$server"; } 2>/dev/null || true
  rm -rf "$data" "$data.log"
}
trap cleanup EXIT

$deno task -q build
# Deno may be a wrapper that is another process: the server says its address, and is stopped with all that it started.
set -m
$deno run -q -P=serve --allow-write="$data" main.ts serve --port 0 --parallel 16 --data "$data" >"$data.log" 2>&1 &
server=$!
set +m
for _ in $(seq 100); do
  url=$(sed -n 's/^listening on //p' "$data.log")
  [ -z "$url" ] || break
  sleep 0.2
done
[ -n "$url" ] || { cat "$data.log"; exit 1; }

hooks=$PWD/tools/schemathesis/hooks.py
venv=$(cd "$venv" && pwd)
cd "$data" # schemathesis keeps a cache where it runs
SCHEMATHESIS_HOOKS=$hooks "$venv/bin/schemathesis" run "$url/doc" \
  --phases examples,coverage,fuzzing,stateful --continue-on-failure --request-timeout 60 "$@"
