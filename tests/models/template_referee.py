"""Renders chat templates as Python does, with jinja2's sandbox and the options of Hugging Face's transformers.

    python3 template_referee.py FOLDER_OF_JINJA2 < rows.json > texts.json

A row is {"source": …, "values": …}. Its text is null where Python refuses the template or the values.
"""

import copy
import datetime
import functools
import json
import sys

sys.path.insert(0, sys.argv[1])

from jinja2 import nodes  # noqa: E402
from jinja2.exceptions import TemplateError  # noqa: E402
from jinja2.ext import Extension  # noqa: E402
from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: E402


class Generation(Extension):
    """The block that marks answers for training. It changes nothing in the text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("text_of"), [], [], body).set_lineno(line)

    def text_of(self, caller):
        return caller()


def refuse(message):
    raise TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = refuse
environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)


template_of = functools.cache(environment.from_string)


def text(row):
    try:
        return template_of(row["source"]).render(**copy.deepcopy(row["values"]))
    except Exception:
        return None


json.dump([text(row) for row in json.load(sys.stdin)], sys.stdout)
