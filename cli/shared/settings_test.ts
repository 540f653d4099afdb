import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { dirname, join } from "@std/path";
import { UsageError } from "./flags.ts";
import { SERVE_SETTINGS } from "../serve/serve_settings.ts";
import { CONFIG_FLAGS, describeSettings, readSettings, settingsFlags } from "./read_settings.ts";
import { choice, count, helpOf, onOff, path, paths, text, texts } from "./settings.ts";

const TABLE = {
  port: count({ min: 0, max: 65_535, default: 8080, help: "where" }),
  kvMb: count({ min: 1, max: 1000, help: "memory" }),
  onFailure: choice("WHAT", ["reload", "exit"], { default: "reload", help: "then" }),
  apiKey: text("KEY", { secret: true, help: "a key" }),
  allowHost: texts("NAME", { help: "names" }),
  openHealth: onOff({ help: "no key" }),
  data: path("DIR", { words: ["none", "-"], help: "a folder" }),
  model: paths("FILE", { help: "files" }),
  cors: texts("ORIGIN", { look: { pattern: /^https:/, rule: "origins" }, help: "pages" }),
};

function read(args: string[] = [], environment: Record<string, string> = {}) {
  return readSettings(TABLE, settingsFlags(TABLE, args, CONFIG_FLAGS), (name) => environment[name]);
}

/** Reads settings with a config file of this content. Errors show its folder's path as FOLDER. */
function readWith(content: string, args: string[] = [], environment: Record<string, string> = {}) {
  const folder = Deno.makeTempDirSync();
  try {
    const file = join(folder, "compy.json");
    Deno.writeTextFileSync(file, content);
    const { values, sources } = read(["--config", file, ...args], environment);
    return { folder, values, sources };
  } catch (error) {
    throw error instanceof UsageError ? new UsageError(error.message.replaceAll(folder, "FOLDER")) : error;
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

Deno.test("settings: use the defaults when nothing is given", () => {
  const { values, sources } = read();
  assertEquals(values, {
    port: 8080,
    kvMb: undefined,
    onFailure: "reload",
    apiKey: undefined,
    allowHost: [],
    openHealth: false,
    data: undefined,
    model: [],
    cors: [],
  });
  assertEquals(new Set(Object.values(sources)), new Set(["default"]));
});

Deno.test("settings: a flag overrides the environment, which overrides the config file", () => {
  const file = '{ "port": 1, "kv_mb": 2, "on_failure": "exit" }';
  const environment = { COMPY_PORT: "11", COMPY_KV_MB: "12" };
  const { values, sources } = readWith(file, ["--port", "21"], environment);
  assertEquals([values.port, values.kvMb, values.onFailure], [21, 12, "exit"]);
  assertEquals([sources.port, sources.kvMb, sources.onFailure], ["flag", "environment", "config file"]);
});

Deno.test("settings: the environment may name the config file, and an empty variable counts as unset", () => {
  const file = Deno.makeTempFileSync();
  try {
    Deno.writeTextFileSync(file, '{ "port": 3 }');
    assertEquals(read([], { COMPY_CONFIG: file, COMPY_PORT: "", COMPY_API_KEY: "" }).values.port, 3);
    assertEquals(read([], { COMPY_CONFIG: "" }).values.port, 8080);
  } finally {
    Deno.removeSync(file);
  }
});

Deno.test("settings: read lists from repeated flags, commas in the environment and arrays in the file", () => {
  assertEquals(read(["--allow-host", "a", "--allow-host", "b"]).values.allowHost, ["a", "b"]);
  assertEquals(read([], { COMPY_ALLOW_HOST: "a, b" }).values.allowHost, ["a", "b"]);
  assertEquals(readWith('{ "allow_host": ["a", "b"] }').values.allowHost, ["a", "b"]);
});

Deno.test("settings: a flag switches off what the file or the environment switches on", () => {
  assertEquals(read(["--open-health"]).values.openHealth, true);
  assertEquals(read([], { COMPY_OPEN_HEALTH: "1" }).values.openHealth, true);
  assertEquals(readWith('{ "open_health": true }').values.openHealth, true);
  assertEquals(readWith('{ "open_health": true }', ["--open-health=false"]).values.openHealth, false);
});

Deno.test("settings: resolve paths in a config file against its folder", () => {
  const { values, folder } = readWith('{ "data": "batches", "model": ["a.gguf", "/b.gguf"] }');
  assertEquals(values.data, join(folder, "batches"));
  assertEquals(values.model, [join(folder, "a.gguf"), "/b.gguf"]);
  assertEquals(readWith('{ "data": "none" }').values.data, "none");
  assertEquals(read(["--data", "batches"]).values.data, "batches");
});

Deno.test("settings: in NAME=PATH of a config file only the path is resolved", () => {
  const { path } = SERVE_SETTINGS.chatTemplate;
  const table = { chatTemplate: { ...TABLE.model, path } };
  const file = Deno.makeTempFileSync({ prefix: "named-" });
  Deno.writeTextFileSync(file, '{ "chat_template": ["own.jinja", "a=b=c.jinja", "a=/d"] }');
  const { values } = readSettings(
    table,
    settingsFlags(table, ["--config", file], CONFIG_FLAGS),
    () => undefined,
  );
  const inFolder = (name: string) => join(dirname(file), name);
  assertEquals(values.chatTemplate, [inFolder("own.jinja"), `a=${inFolder("b=c.jinja")}`, "a=/d"]);
  Deno.removeSync(file);
});

Deno.test("settings: a lone - is a value, not a path", () => {
  for (const args of [["--data", "-"], ["--data=-"]]) assertEquals(read(args).values.data, "-");
  const { values } = read(["--data", "-", "--port", "1"]);
  assertEquals([values.data, values.port], ["-", 1]);
});

Deno.test("settings: a refusal names the source, the allowed values and the value", () => {
  const refusals: [() => unknown, string][] = [
    [() => read(["--port", "x"]), '--port must be a whole number from 0 to 65535 (got "x")'],
    [() => read(["--port", "65536"]), '--port must be a whole number from 0 to 65535 (got "65536")'],
    [
      () => read(["--api-key", ""]),
      '--api-key needs a value; write one that begins with "-" as --api-key=VALUE',
    ],
    [() => read(["--prot", "1"]), "There is no option --prot"],
    [() => read(["--open-health=maybe"]), '--open-health must be true or false (got "maybe")'],
    [() => read(["--cors", "https://a", "--cors", "b"]), "--cors must be origins (got an array of 2)"],
    [() => read([], { COMPY_PORT: "-1" }), 'COMPY_PORT must be a whole number from 0 to 65535 (got "-1")'],
    [() => read([], { COMPY_ON_FAILURE: "no" }), 'COMPY_ON_FAILURE must be one of reload, exit (got "no")'],
    [
      () => readWith('{ "port": "8080" }'),
      '"port" in "FOLDER/compy.json" must be a whole number from 0 to 65535 (got "8080")',
    ],
    [
      () => readWith('{ "kv_mb": 2.5 }'),
      '"kv_mb" in "FOLDER/compy.json" must be a whole number from 1 to 1000 (got 2.5)',
    ],
    [
      () => readWith('{ "allow_host": "a" }'),
      '"allow_host" in "FOLDER/compy.json" must be an array of non-empty texts (got "a")',
    ],
    [
      () => readWith('{ "cors": "https://a" }'),
      '"cors" in "FOLDER/compy.json" must be an array of origins (got "https://a")',
    ],
    [
      () => readWith('{ "api_key": 17 }'),
      '"api_key" in "FOLDER/compy.json" must be a text that is not empty',
    ],
    [
      () => readWith('{ "kvMb": 1 }'),
      'There is no setting "kvMb" (in "FOLDER/compy.json"); there are port, kv_mb, on_failure, api_key, allow_host, ' +
      "open_health, data, model, cors",
    ],
    [() => readWith("[]"), 'The config file "FOLDER/compy.json" must be a JSON object (got an array of 0)'],
  ];
  for (const [action, message] of refusals) {
    assertEquals(assertThrows(action, UsageError).message, message);
  }
  assertMatch(
    assertThrows(() => readWith('{ "port": 1,'), UsageError).message,
    /^The config file "FOLDER\/compy\.json" is not valid JSON: /,
  );
  const missing = assertThrows(() => read(["--config", "/no/such.json"]), Error);
  assertEquals(
    missing.message,
    'Cannot read the config file "/no/such.json": there is no such file or folder',
  );
});

Deno.test("settings: --print-config shows each value with its source, and never shows keys", () => {
  const settings = read(["--port", "1"], { COMPY_API_KEY: "s3cret", COMPY_ALLOW_HOST: "a,b" });
  const shown = describeSettings(TABLE, settings, false);
  assertEquals(shown.split("\n").slice(0, 5).map((line) => line.split(/ {2,}/)), [
    ["port", "1", "flag"],
    ["kv_mb", "null", "default"],
    ["on_failure", '"reload"', "default"],
    ["api_key", '"(hidden)"', "environment"],
    ["allow_host", '["a","b"]', "environment"],
  ]);
  const json = describeSettings(TABLE, settings, true);
  assertEquals(JSON.parse(json).port, { value: 1, source: "flag" });
  assertEquals((shown + json).includes("s3cret"), false);
});

Deno.test("settings: the help has a line per setting, within the terminal's width", () => {
  const lines = helpOf(SERVE_SETTINGS).split("\n");
  for (const line of lines) assertEquals(line.length <= 110, true, line);
  const flags = lines.filter((line) => line.startsWith("  --"));
  assertEquals(flags.length, Object.keys(SERVE_SETTINGS).length);
});
