import { assert, assertEquals, assertThrows } from "@std/assert";
import { compileTemplate, strftime, TemplateRefusal } from "./template.ts";
import { finish } from "../../../pacing/pauses.ts";

function render(source: string, variables: Record<string, unknown> = {}): string {
  return finish(compileTemplate(source)(variables));
}

Deno.test("jinja: a template sees its variables and the usual globals", () => {
  assertEquals(
    render("{{ a.b[0] }}{{ true }}{% if none is none %}!{% endif %}", { a: { b: ["x"] } }),
    "xTrue!",
  );
  assertEquals(render("{% for i in range(2, 8, 3) %}{{ i }},{% endfor %}{{ range(3) | length }}"), "2,5,3");
  assertEquals(render("{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{{ range(0) | length }}"), "3210");
  assertEquals(render("{{ strftime_now('%%') }}"), "%");
});

Deno.test("jinja: distinguishes a template's own refusal from its failures", () => {
  assertThrows(
    () => render("{{ raise_exception('roles must alternate') }}"),
    TemplateRefusal,
    "roles must alternate",
  );
  assertThrows(() => render("{{ a.b.c() }}"), Error, "'a' is undefined");
  assertThrows(() => render("{{ 'x'() }}"), Error, "not callable");
});

Deno.test("jinja: a template cannot reach JavaScript", () => {
  for (const name of ["constructor", "__proto__", "toString", "prototype", "length", "attribute", "begin"]) {
    assertEquals(
      render(`{{ text.${name} }}{{ list.${name} }}{{ data.${name} }}`, { text: "", list: [], data: {} }),
      "",
    );
    assertThrows(() => render(`{{ ''.${name}.constructor }}`), Error, "no attribute");
  }
  assertThrows(() => render("{{ ''.constructor.constructor('return 1')() }}"), Error);
});

Deno.test("jinja: refuses an invalid template when it is parsed", () => {
  for (
    const source of ["{% if %}", "{{ a", "{% for x in y %}", "{% endfor %}", "{{ 'a }}", "{% nothing %}"]
  ) {
    assertThrows(() => compileTemplate(source), Error);
  }
  assertThrows(() => compileTemplate("x".repeat(2 ** 20 + 1)), Error, "at most 1048576");
  assertThrows(() => compileTemplate(`{{ ${"(".repeat(100_000)} }}`), Error);
});

Deno.test("jinja: stops templates that grow without limit", () => {
  const bombs = [
    "{{ range(1000000000) }}",
    "{{ range(0, 1, 0) }}",
    "{{ range(0, 1, 0.0000000001) }}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
  ];
  for (const bomb of bombs) assertThrows(() => render(bomb), Error, undefined, bomb);
});

Deno.test("jinja: stops an endless template after a fixed number of steps", () => {
  const bombs = [
    "{% for i in range(100000) %}".repeat(3) + "{% endfor %}".repeat(3),
    "{% for i in range(100000) %}{% for j in range(100000) if j < 0 %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
    "{% macro m() %}{% for i in range(100000) %}{% set x = x ~ 'x' %}{% endfor %}{% endmacro %}" +
    "{% for i in range(100000) %}{{ m() }}{% endfor %}",
    "{% set t = 'x' * 8000000 %}{% for i in range(100000) %}{% set u = t | upper %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = range(100000) | list %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
  ];
  for (const bomb of bombs) assertThrows(() => render(bomb), Error, "than", bomb);
});

Deno.test("jinja: formats dates as Python does", () => {
  const date = new Date(2024, 6, 5, 15, 4, 9); // a Friday
  assertEquals(strftime(date, "%d %b %Y, %A %B %y-%m"), "05 Jul 2024, Friday July 24-07");
  assertEquals(strftime(date, "%a %H:%M:%S %I %p %% %j"), "Fri 15:04:09 03 PM % 187");
  assertEquals(strftime(new Date(2024, 0, 1), "%I %p"), "12 AM");
  assertEquals(strftime(new Date(2024, 0, 1, 8), "%-d %-m %-H %-j %Q"), "1 1 8 1 %Q");
  assert(/^\d{4}$/.test(render("{{ strftime_now('%Y') }}")));
});

Deno.test("jinja: converts a mapping to text as Python does", () => {
  const tool = { name: "f", text: 'a "b"\n', "it's": [1, 2.5, true, false, null, {}, "it's", "both '\""] };
  assertEquals(
    render("{{ 'x' ~ (tool | string) }}", { tool }),
    `x{'name': 'f', 'text': 'a "b"\\n', "it's": [1, 2.5, True, False, None, {}, "it's", 'both \\'"']}`,
  );
  assertEquals(render("{{ 'a' | string }}{{ 1 | string }}{{ [1, 'b'] | string }}"), "a1[1, 'b']");
  assertEquals(render("{{ true | string }}{{ none | string }}{{ 1.5 | string }}"), "TrueNone1.5");
});

Deno.test("jinja: a mapping may have integer keys", () => {
  const gears = "{% set gears = { 512: 'b', 0: 'a', 16384: 'c' } %}";
  assertEquals(
    render(`${gears}{% for k, v in gears | dictsort %}{{ k + 1 }}{{ v }} {% endfor %}{{ gears[16384] }}`),
    "1a 513b 16385c c",
  );
  assertEquals(
    render(`${gears}{% for k, v in gears | items %}{{ k + 1 }}{{ v }} {% endfor %}`),
    "513b 1a 16385c ",
  );
  assertEquals(render(`${gears}{% set k = 512 %}{{ gears[k] }}{{ gears[1] is undefined }}`), "bTrue");
});

Deno.test("jinja: text filters treat undefined as an empty text", () => {
  assertEquals(render("[{{ tool.description | trim }}{{ tool.name | upper }}]", { tool: {} }), "[]");
  assertEquals(render("{{ tool.name | default('f') }}{{ [1, none] | tojson }}", { tool: {} }), "f[1, null]");
});

Deno.test("jinja: undefined is not a key or list item, and joins text as empty", () => {
  assertEquals(render("[{{ {'a': 1}[tool.type] }}{{ [1][tool.type] }}]", { tool: {} }), "[]");
  assertEquals(
    render("{{ tool.type in ('a', 'b') }}{{ tool.type not in ['a'] }}", { tool: {} }),
    "FalseTrue",
  );
  assertEquals(render("{{ 'a' ~ tool.type ~ 1 ~ true ~ none }}", { tool: {} }), "a1TrueNone");
  assertEquals(render("{{ none | selectattr('type', 'equalto', 'a') | list | length }}"), "0");
  assertEquals(render("{{ 'a' in ['a'] }}{{ 'a' not in 'abc' }}{{ 'b' in {'b': 1} }}"), "TrueFalseTrue");
});

Deno.test("jinja: tojson accepts the result of a filter, unlike Python", () => {
  assertEquals(render("{{ [{'a': 1}] | map(attribute='a') | tojson }}"), "[1]");
});

Deno.test("jinja: lists have append and pop", () => {
  const list =
    "{% set ns = namespace(list=['a']) %}{% set _ = ns.list.append('b') %}{% if ns.list.append(3) is none %}, {% endif %}";
  assertEquals(
    render(`${list}{{ ns.list | length }}{{ ns.list.pop(0) }}{{ ns.list.pop() }}{{ ns.list }}`),
    ", 3a3['b']",
  );
  for (const wrong of ["[].pop()", "[].append()", "['a'].pop(1)"]) {
    assertThrows(() => render(`{{ ${wrong} }}`), Error, "function");
  }
  assertThrows(() => render("{{ {}.pop() }}"), Error, "unsafe");
});

Deno.test("jinja: supports format on texts, min and max on lists, and tuple unpacking in loops", () => {
  assertEquals(render("{{ '<{}{{x}}{}>'.format('a', 1) }}{{ '{1}{0}'.format('a', 'b') }}"), "<a{x}1>ba");
  assertThrows(() => render("{{ '{}{}'.format('a') }}"), Error, "fewer values");
  assertThrows(() => render("{{ a.format('a') }}", { a: {} }), Error, "no attribute 'format'");
  assertEquals(render("{{ [3, 1, 2] | min }}{{ [3, 1.5, 2] | max }}{{ [1.5, 2] | min }}"), "131.5");
  assertEquals(render("{{ ['b', 'A'] | min }}"), "A");
  assertThrows(() => render("{{ ['a', 1] | min }}"), Error, "cannot order");
  assertEquals(render("{% for a, b in [('x', 1), ('y', 2)] %}{{ a }}{{ b }}{% endfor %}"), "x1y2");
});
