#!/usr/bin/env bash
# Installs the clients in Python, in the pinned versions, where tests/server/clients_test.ts looks for them.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=.cache/clients
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check -r tools/clients/requirements.txt
