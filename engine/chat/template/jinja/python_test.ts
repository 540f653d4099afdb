import { assertEquals } from "@std/assert";
import { finish } from "../../../pacing/pauses.ts";
import { compileTemplate } from "./template.ts";

/** Templates, with the output of jinja2 3.1 under transformers' options. */

const VARIABLES = {
  "d": { "items": [1], "keys": "k", "values": 2, "get": "g", "x": { "y": "z" } },
  "l": [3, 1, 2],
  "s": "Hello World",
  "tools": [{ "type": "function", "name": "b" }, { "type": "other", "name": "a" }],
  "n": null,
  "m": [{ "role": "user", "content": "é\n" }],
};

const CASES: Readonly<Record<string, readonly (readonly [template: string, text: string])[]>> = {
  "keeps what a pass has written before break and continue": [
    [
      "{% for i in [1,2,3,4] %}<{{ i }}{% if i == 2 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}>{% endfor %}",
      "<1><2<3",
    ],
    ["{% for i in [1,2] %}{% for j in [1,2] %}{{ j }}{% break %}{% endfor %}-{% endfor %}", "1-1-"],
  ],
  "takes a dict's methods before its keys": [
    [
      "{{ d.items | length if d.items is sequence else 'method' }}{{ d['items'] }}{{ d.get('items') }}{{ d['keys'] }}{{ d.x.y }}",
      "method[1][1]kz",
    ],
    [
      "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ d.keys() | list }}{{ d.values() | first }}",
      "items=[1];keys=k;values=2;get=g;x={'y': 'z'};['items', 'keys', 'values', 'get', 'x'][1]",
    ],
    [
      "{{ d.missing is defined }}{{ d['missing'] is undefined }}{{ d.x.get('q', 5) }}{{ d.x.get('q') is none }}",
      "FalseTrue5True",
    ],
  ],
  "converts values of another type in filters and operators": [
    [
      "{{ ['string', 'null'] | upper }}{{ none | lower }}{{ 12 | trim }}{{ true | title }}{{ 3 | replace(3, 4) }}",
      "['STRING', 'NULL']none12True4",
    ],
    [
      "{{ 'ab' * 3 }}{{ 2 * 'x' }}{{ [1] * 2 }}{{ [1] in [[1], 2] }}{{ [1, 2] + [3] }}{{ (1,) + (2,) }}",
      "abababxx[1, 1]True[1, 2, 3](1, 2)",
    ],
    [
      "{{ 1 == 1.0 }}{{ true == 1 }}{{ '1' == 1 }}{{ [1] == (1,) }}{{ 'b' not in 'abc' }}{{ none ~ 1 ~ [] }}",
      "TrueTrueFalseFalseFalseNone1[]",
    ],
    [
      "{{ '%s is %d' % ('a', 3) }}{{ '%5.1f|%-4s|%04d' | format(2.25, 'x', 7) }}{{ '{:>4}|{:.2f}|{:,}'.format('a', 1.005, 1234567) }}",
      "a is 3  2.2|x   |0007   a|1.00|1,234,567",
    ],
  ],
  "has select, reject, map, sum, groupby and the other filters of lists": [
    [
      "{{ l | select('greaterthan', 1) | list }}{{ l | reject('odd') | list }}{{ l | select | list }}{{ l | sum }}{{ tools | sum(attribute='name', start='') if false }}",
      "[3, 2][2][3, 1, 2]6",
    ],
    [
      "{{ tools | selectattr('type', 'equalto', 'function') | map(attribute='name') | join(', ') }}{{ tools | rejectattr('x', 'undefined') | list | length }}{{ tools | rejectattr('x', 'defined') | list | length }}",
      "b02",
    ],
    [
      "{% for g in tools | groupby('type') %}{{ g.grouper }}:{{ g.list | length }}{{ g[0] }} {% endfor %}{{ tools | map('length') | list }}{{ ['a', 'B'] | map('upper') | list }}",
      "function:1function other:1other [2, 2]['A', 'B']",
    ],
    [
      "{{ l | sort }}{{ l | sort(reverse=true) }}{{ ['b', 'A', 'a'] | sort }}{{ ['b', 'A', 'a', 'B'] | unique | list }}{{ tools | sort(attribute='name') | map(attribute='name') | list }}",
      "[1, 2, 3][3, 2, 1]['A', 'a', 'b']['b', 'A']['a', 'b']",
    ],
    [
      "{{ l | batch(2) | list }}{{ [1,2,3,4,5] | slice(2) | list }}{{ l | first }}{{ l | last }}{{ [] | first }}{{ l | max }}{{ l | reverse | list }}{{ 'abc' | reverse }}",
      "[[3, 1], [2]][[1, 2, 3], [4, 5]]323[2, 1, 3]cba",
    ],
    [
      "{{ {'b': 1, 'a': 2} | dictsort }}{{ {'b': 1, 'a': 2} | dictsort(false, 'value') }}{{ {'b': 1} | items | list }}{{ none | map('upper') | list }}",
      "[('a', 2), ('b', 1)][('b', 1), ('a', 2)][('b', 1)][]",
    ],
    [
      "{{ tools | selectattr('name') | list | length }}{{ 'yes' if tools | select('none') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ q | default('e') }}",
      "2yesde",
    ],
  ],
  "has dict, namespace, cycler, joiner, with, raw, call and filter blocks": [
    [
      "{{ dict(a=1, b=[2]) }}{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{% raw %}{{ x }}{% endraw %}{{ x is defined }}",
      "{'a': 1, 'b': [2]}3{{ x }}False",
    ],
    [
      "{% for i in [1,2,3] %}{{ loop.cycle('a', 'b') }}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.length }};{% else %}none{% endfor %}",
      "a12TrueFalse23;b21FalseFalse133;a30FalseTrue23;",
    ],
    [
      "{% macro m(a, b='x', c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}{{ m(1) }}|{{ m(1, 2, 3, 4, k=5) }}|{% call m(9) %}body{% endcall %}|{{ m(*[7, 8], **{'q': 1}) }}",
      "1x1(){}|123(4,){'k': 5}|9x9(){}body|787(){'q': 1}",
    ],
    [
      "{% filter upper %}a{{ s }}{% endfilter %}{% set t | trim %}  x  {% endset %}[{{ t }}]{% set j = joiner('-') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}",
      "AHELLO WORLD[x]3-1-2121",
    ],
    [
      "{% for t in [{'n': 1, 'c': [{'n': 2, 'c': []}]}] recursive %}{{ t.n }}{{ loop.depth }}({{ loop(t.c) }}){% endfor %}",
      "11(22())",
    ],
    [
      "{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set b = 1 %}{% endfor %}{{ ns.a }}{{ b is defined }}{% set a, b = 1, (2, 3) %}{{ a }}{{ b }}",
      "7False1(2, 3)",
    ],
    [
      "{% generation %}{% set z = 1 %}{{ z }}{% endgeneration %}{{ z is defined }}{% for i in l if i > 1 %}{{ loop.length }}{{ i }}{% endfor %}",
      "1False2322",
    ],
  ],
  "prints values as Python does": [
    [
      "{{ none }} {{ true }} {{ [1, 'a', none, false, {'k': [1.0, 'it\\'s']}] }} {{ (1,) }} {{ () }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }} {{ q }}",
      "None True [1, 'a', None, False, {'k': [1.0, \"it's\"]}] (1,) () 1.0 1e+16 1e-05 123456789.125 0.30000000000000004 ",
    ],
    [
      "{{ m | string }}{{ ['\\x00\\u200b\\\\', 'a\\'b\"'] }}{{ d.items() }}{{ range(3) | list }}{{ 10 ** 20 }}{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 4 / 2 }}{{ 2 ** -1 }}",
      "[{'role': 'user', 'content': 'é\\n'}]['\\x00\\u200b\\\\', 'a\\'b\"']dict_items([('items', [1]), ('keys', 'k'), ('values', 2), ('get', 'g'), ('x', {'y': 'z'})])[0, 1, 2]1000000000000000000003-423.52.00.5",
    ],
    [
      "{{ m | tojson }}{{ {'a': [1.0, none, true], 'b': {}} | tojson(indent=2) }}{{ [1, 2] | tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 'é'} | tojson(sort_keys=true, ensure_ascii=true) }}{{ [] | tojson(indent=1) }}",
      '[{"role": "user", "content": "é\\n"}]{\n  "a": [\n    1.0,\n    null,\n    true\n  ],\n  "b": {}\n}[1,2]{"a": "\\u00e9", "b": 1}[]',
    ],
    [
      "{{ 2.5 | round }}{{ 3.14159 | round(2) }}{{ 7 | round }}{{ 2.1 | round(0, 'ceil') }}{{ '12' | int }}{{ 'x' | int(5) }}{{ '1.9' | int }}{{ '1.5' | float }}{{ 3 | float }}{{ -3 | abs }}{{ 9 | string }}",
      "2.03.1473.012511.53.039",
    ],
  ],
  "slices and searches texts and lists as Python does": [
    [
      "{{ s[0] }}{{ s[-1] }}{{ s[1:4] }}{{ s[::-1] }}{{ s[::2] }}{{ l[1:] }}{{ l[-2:] }}{{ l[5:] }}{{ l[9] is undefined }}{{ 'a😀b' | length }}{{ 'a😀b'[1] }}{{ (1,2,3)[:2] }}",
      "HdelldlroW olleHHloWrd[1, 2][1, 2][]True3😀(1, 2)",
    ],
    [
      "{{ s.split() }}{{ s.split('o', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a b'.partition(' ') }}{{ s.find('o') }}{{ s.count('l') }}{{ s.startswith(('x', 'He')) }}{{ 'x'.join(['a', 'b']) }}{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }}{{ 'aXb'.swapcase() }}",
      "['Hello', 'World']['Hell', ' World']['a,b', 'c']('a', ' ', 'b')43Trueaxbx|aAxB",
    ],
    [
      "{{ 'hello wORLD-foo'.title() }}{{ 'hello wORLD-foo' | title }}{{ 'hELLO' | capitalize }}{{ 'a\nb\r\nc\n'.splitlines() }}{{ 'a\r\nb\n'.splitlines(true) }}{{ ''.splitlines() }}{{ 'ab'.replace('', '-') }}{{ '7'.zfill(3) }}{{ 'x'.center(5, '*') }}{{ 'abc'.removeprefix('a') }}{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}",
      "Hello World-FooHello World-FooHello['a', 'b', 'c']['a\\n', 'b\\n'][]-a-b-007**x**bcTrueTrue",
    ],
    [
      "{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(1, true) }}|{{ '<a>&\"' | e }}|{{ 'one two' | wordcount }}|{{ 'a b/c' | urlencode }}|{{ 'x' | center(3) }}|{{ 'hello world foo' | truncate(9, leeway=0) }}",
      "a\n  b\n\n  c| a\n b|&lt;a&gt;&amp;&#34;|2|a%20b/c| x |hello...",
    ],
  ],
  "evaluates operators in Python's order": [
    [
      "{{ (1 + 2 * 3) ~ 4 }}{{ 1 + 2 * 3 - 4 // 3 }}{{ not 1 == 2 }}{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' 'b' }}{{ 1 if false }}{{ 1 if true else 2 if x else 3 }}{{ -2 ** 2 }}{{ 2 | string + 'x' }}{{ 'A' | lower ~ 'B' | lower }}",
      "746TrueTrueFalseab142xab",
    ],
    [
      "{{ 1 is odd and 2 is even }}{{ 4 is divisibleby 2 }}{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ none is none }}{{ 1.0 is float }}{{ 1 is integer }}{{ q is not defined }}{{ 3 is in l }}{{ l is iterable }}{{ 2 is eq 2 }}{{ 'a' or 'b' }}{{ 0 and 1 }}",
      "TrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTruea0",
    ],
  ],
  "treats white space and line ends as Python does": [
    ["a\r\n{% if true %}\r\n  b\r\n{% endif %}\r\nc\r\n", "a\n  b\nc"],
    [
      "  {% if true %}  \n x {%- endif %}\n  {{- 'y' -}}  \n z {#- c -#}  w\n   {%+ if true %} k {% endif +%}\n\n{# c #}\n  e\n",
      "  \n xyzw\n    k \n\n  e",
    ],
    ["{{ 'a\\n\\x41\\u0042\\t\\q' }}{{ \"it's\" }}", "a\nAB\t\\qit's"],
  ],
};

for (const [behaviour, cases] of Object.entries(CASES)) {
  Deno.test(`jinja: ${behaviour}`, () => {
    for (const [template, text] of cases) {
      assertEquals(finish(compileTemplate(template)(VARIABLES)), text, template);
    }
  });
}
