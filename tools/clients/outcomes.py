"""What the programs in Python share: they print an outcome a line as JSON, for tests/server/clients_test.ts."""

import json
import traceback


def same(one, other):
    assert one == other, f"{one!r} != {other!r}"


def joined(texts):
    return "".join(text or "" for text in texts)


def run(calls):
    for name, call in calls.items():
        error = None
        try:
            call()
        except Exception:
            error = traceback.format_exc()
        print(json.dumps({"call": name, "error": error}), flush=True)
