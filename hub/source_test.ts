import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { chooseNamed, findChoices } from "./choices.ts";
import { PullError } from "./errors.ts";
import { parseModelList, SHIPPED_LIST } from "./model_list.ts";
import { isSafePath, localName } from "./names.ts";
import { parseEndpoint, parseSource, sourceText } from "./source.ts";

Deno.test("sources: accept a repository with optional revision and file, and addresses", () => {
  assertEquals(parseSource("hf:me/Model-GGUF"), {
    kind: "hub",
    owner: "me",
    repo: "Model-GGUF",
    revision: undefined,
    wanted: undefined,
  });
  assertEquals(
    sourceText(parseSource("hf:me/Model-GGUF@v1.2:sub/a.gguf")),
    "hf:me/Model-GGUF@v1.2:sub/a.gguf",
  );
  const { kind } = parseSource("https://example.org/a.gguf?key=secret#part");
  assertEquals(kind, "url");
  assertEquals(
    sourceText(parseSource("https://example.org/a.gguf?key=secret")),
    "https://example.org/a.gguf",
  );
  parseSource("http://127.0.0.1:99/a.gguf");
});

const REFUSED: [source: string, why: string][] = [
  ["hf:me", "must be hf:OWNER/REPO"],
  ["hf:me/../x", "must be hf:OWNER/REPO"],
  ["hf:me/..", "must be letters"],
  ["hf:../me", "must be letters"],
  ["hf:me/a:../../b.gguf", 'without ".."'],
  ["hf:me/a:/etc/passwd", 'without ".."'],
  ["hf:me/a:x\\..\\b.gguf", 'without ".."'],
  ["hf:me/a@../..:Q4_0", "must be a branch"],
  ["http://example.org/a.gguf", "must be an https address"],
  ["ftp://example.org/a.gguf", "must be an https address"],
  ["file:///etc/passwd", "must be an https address"],
  ["https://me:hunter2@example.org/a.gguf", "must not contain a user name"],
  ["nothing", "must begin with hf: or https://"],
];
Deno.test("sources: refuse paths outside the repository and unencrypted connections", () => {
  for (const [source, why] of REFUSED) {
    const { message, code } = assertThrows(() => parseSource(source), PullError);
    assertStringIncludes(message, why, source);
    assertEquals(code, "PULL_SOURCE");
    assert(!message.includes("hunter2"), "no passwords in messages");
  }
  for (const endpoint of ["nothing", "http://example.org", "https://a:b@example.org"]) {
    assertThrows(() => parseEndpoint(endpoint), PullError);
  }
  assertEquals(parseEndpoint("https://example.org/mirror").href, "https://example.org/mirror/");
});

Deno.test("names: refuse paths that leave the folder or would not be offered there", () => {
  for (
    const path of [
      "../a.gguf",
      "/a.gguf",
      "a/../b.gguf",
      "a//b.gguf",
      "a\\b.gguf",
      "a\u0000.gguf",
      "",
      "a/\u202e.gguf",
    ]
  ) {
    assertEquals(isSafePath(path), false, JSON.stringify(path));
  }
  assertEquals(localName("Q4/a-Q4_0.gguf"), "a-Q4_0.gguf");
  for (const name of [".hidden.gguf", "a b.gguf", "a.bin", ".gguf", `${"a".repeat(200)}.gguf`]) {
    assertThrows(() => localName(name), PullError, "--as NAME");
  }
});

const remote = (path: string, size: number | undefined = 100) => ({
  path,
  size,
  sha256: undefined,
  url: new URL(`https://example.org/${path}`),
});
const summary = (paths: string[]) =>
  findChoices(paths.map((path, i) => remote(path, 100 + i))).map((
    { name, quantisation, pieces, missing },
  ) => [
    name,
    quantisation,
    pieces.map(({ path, file, offset }) => path.endsWith(file) ? file : `${file}+${offset}`),
    missing,
  ]);

Deno.test("choices: quantizations are read from file names, and statistics are skipped", () => {
  const names = [
    "M-Q4_K_M.gguf",
    "M.IQ4_XS.gguf",
    "m-f16.gguf",
    "M-UD-Q4_K_XL.gguf",
    "gpt-mxfp4.gguf",
    "plain.gguf",
  ];
  const others = ["M.imatrix.gguf", "imatrix.gguf", "README.md"];
  assertEquals(summary([...names, ...others]).map(([name, quantisation]) => [name, quantisation]), [
    ["M-Q4_K_M", "Q4_K_M"],
    ["M.IQ4_XS", "IQ4_XS"],
    ["m-f16", "F16"],
    ["M-UD-Q4_K_XL", "UD-Q4_K_XL"],
    ["gpt-mxfp4", "MXFP4"],
    ["plain", ""],
  ]);
});

Deno.test("choices: a model gets the best vision tower of its folder, renamed after the model", () => {
  const towerOf = (paths: string[]) =>
    findChoices(paths.map((path) => remote(path))).map(({ pieces, bytes }) => {
      const { path, file } = pieces.at(-1)!;
      return [pieces.length, path, file, bytes];
    });
  const towers = ["mmproj-F32.gguf", "mmproj-BF16.gguf", "M-mmproj-f16.gguf"];
  assertEquals(towerOf(["M-Q4_K_M.gguf", ...towers]), [[
    2,
    "M-mmproj-f16.gguf",
    "mmproj-M-Q4_K_M.gguf",
    200,
  ]]);
  assertEquals(towerOf(["M-Q4_K_M.gguf", ...towers, "mmproj-M-Q8_0.gguf"])[0][1], "mmproj-M-Q8_0.gguf");
  assertEquals(towerOf(["M-Q4_K_M.gguf", "mmproj-b.gguf", "mmproj-a.gguf"])[0][1], "mmproj-a.gguf");
  const folders = ["a/A-Q8_0-00001-of-00002.gguf", "a/A-Q8_0-00002-of-00002.gguf", "a/mmproj-F16.gguf"];
  assertEquals(towerOf([...folders, "b/B-Q8_0.gguf", "mmproj-Q8_0.gguf"]), [
    [2, "mmproj-Q8_0.gguf", "mmproj-B-Q8_0.gguf", 200],
    [3, "a/mmproj-F16.gguf", "mmproj-A-Q8_0.gguf", 300],
  ]);
  assertEquals(towerOf(["b/B-Q8_0.gguf", "a/mmproj-F16.gguf"]), [[1, "b/B-Q8_0.gguf", "B-Q8_0.gguf", 100]]);
  const choices = findChoices(["M-Q4_0.gguf", "M-Q8_0.gguf", "mmproj-F16.gguf"].map((path) => remote(path)));
  assertThrows(() => chooseNamed(choices, "mmproj-F16.gguf", "it"), PullError, "has no file or quantisation");
});

Deno.test("choices: all files of a split model form one choice, and missing files are named", () => {
  assertEquals(summary(["Q8/M-Q8_0-00002-of-00002.gguf", "Q8/M-Q8_0-00001-of-00002.gguf"]), [
    ["M-Q8_0", "Q8_0", ["M-Q8_0-00001-of-00002.gguf", "M-Q8_0-00002-of-00002.gguf"], ""],
  ]);
  assertEquals(summary(["M-Q8_0-00002-of-00003.gguf"])[0][3], "2 of 3 files");
  assertEquals(summary(["M-Q6_K.gguf.part2of2", "M-Q6_K.gguf.part1of2"]), [
    ["M-Q6_K", "Q6_K", ["M-Q6_K.gguf+0", "M-Q6_K.gguf+101"], ""],
  ]);
  assertEquals(summary(["M-Q6_K.gguf.part1of3"])[0][3], "2 of 3 parts");
  assertEquals(summary(["M-Q6_K.gguf-split-a", "M-Q6_K.gguf-split-b"])[0].slice(2), [
    ["M-Q6_K.gguf+0", "M-Q6_K.gguf+100"],
    "",
  ]);
  assertEquals(summary(["M-Q6_K.gguf-split-a", "M-Q6_K.gguf-split-c"])[0][3], "1 of 2 parts");
});

Deno.test("model lists: accept the user's names, and errors say where", () => {
  const sha256 = "AB".repeat(32);
  const list = parseModelList(
    `{"a": "hf:me/A:Q4_0", "b": {"source": "https://x.org/b.gguf", "sha256": "${sha256}"}}`,
    "l.json",
  );
  assertEquals(list, {
    a: { source: "hf:me/A:Q4_0" },
    b: { source: "https://x.org/b.gguf", sha256: sha256.toLowerCase() },
  });
  for (const json of ["{", "[]", '{"a": 1}', '{"a": {"sha256": "00"}}', '{"../a": "hf:me/A"}']) {
    assertThrows(
      () => parseModelList(json, "l.json"),
      PullError,
      'Cannot read the list of models in "l.json"',
    );
  }
  for (const { source } of Object.values(SHIPPED_LIST)) assertEquals(sourceText(parseSource(source)), source);
});
