import { assert, assertEquals, assertMatch } from "@std/assert";
import { root, withFolder } from "../../testing/commands.ts";
import { fullTier } from "../../testing/tier.ts";

/* The programs of examples/, on the demo model, with the permissions in their first lines. */

const MOST_LINES = 40;

function start(
  example: string,
  args: readonly string[],
  stdin: "null" | "piped" = "null",
): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--no-check", "-P=library", `examples/${example}.ts`, ...args],
    cwd: root,
    env: { NO_COLOR: "1" },
    stdin,
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

async function outputOf(child: Deno.ChildProcess): Promise<string> {
  const { code, stdout, stderr } = await child.output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}

const run = (example: string, ...args: string[]) => outputOf(start(example, args));

Deno.test("examples: each program has fewer than 40 lines", async () => {
  for await (const { name } of Deno.readDir(`${root}examples`)) {
    if (!name.endsWith(".ts")) continue;
    const lines = (await Deno.readTextFile(`${root}examples/${name}`)).trim().split("\n").length;
    assert(lines < MOST_LINES, `${name} has ${lines} lines`);
  }
});

Deno.test("example chat: a conversation continues from the cache", async () => {
  const child = start("chat", [], "piped");
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode("Who are you?\nAnd who am I?\n"));
  await writer.close();
  const output = await outputOf(child);
  assertEquals(output.split("> ").length, 4);
  const usages = [...output.matchAll(/\((\d+) \+ (\d+) tokens, (\d+) found\)/g)].map((match) =>
    match.slice(1).map(Number)
  );
  assertEquals(usages.length, 2);
  assert(usages[1][0] > usages[0][0] + usages[0][1] && usages[1][2] > 0, output);
});

fullTier.test("example batch: the same command resumes after Ctrl-C", async () => {
  await withFolder(async (folder) => {
    const [questions, answers] = [`${folder}/questions.txt`, `${folder}/answers.jsonl`];
    await Deno.writeTextFile(questions, Array.from({ length: 60 }, (_, i) => `Count to ${i}\n`).join(""));
    const child = start("batch", [questions, answers]);
    const decoder = new TextDecoder();
    let said = "";
    for await (const chunk of child.stdout) {
      const before = said;
      said += decoder.decode(chunk);
      if (!/^[1-9]\d* of/m.test(before) && /^[1-9]\d* of/m.test(said)) child.kill("SIGINT");
    }
    await child.stderr.cancel();
    await child.status;
    const kept = Number(/stopped: (\d+) answers/.exec(said)?.[1]);
    assert(kept > 0 && kept < 60, said);
    const again = await run("batch", questions, answers);
    assertEquals(again.split("\n")[0], `${kept} of 60`);
    assertMatch(again, /done: 60 answers, 0 errors/);
    const lines = (await Deno.readTextFile(answers)).trim().split("\n").map((line) =>
      JSON.parse(line).custom_id
    );
    assertEquals(lines, Array.from({ length: 60 }, (_, i) => `line-${i + 1}`));
  });
});

fullTier.test("example server: serves its own routes, and compy's below /llm", async () => {
  const port = String(freePort());
  const child = start("server", ["models/demo.gguf", port]);
  const base = `http://127.0.0.1:${port}`;
  for (let tries = 0; !await isUp(base); tries++) {
    assert(tries < 200, "the server does not answer");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const { text } = await (await fetch(`${base}/summary?text=snow`)).json();
  assert(text.length > 0);
  const body = {
    messages: [{ role: "user", content: "Say it in five words: snow" }],
    max_tokens: 30,
    temperature: 0,
  };
  const response = await fetch(`${base}/llm/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  assertEquals((await response.json()).choices[0].message.content, text);
  child.kill("SIGTERM");
  await outputOf(child);
});

async function isUp(base: string): Promise<boolean> {
  try {
    await (await fetch(base)).body?.cancel();
    return true;
  } catch {
    return false;
  }
}

function freePort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return (listener.addr as Deno.NetAddr).port;
}

fullTier.test("examples search and extract: search prints the nearest lines, and extract prints data that matches a schema", async () => {
  await withFolder(async (folder) => {
    const texts = `${folder}/texts.txt`;
    await Deno.writeTextFile(
      texts,
      "Ann is five and likes dogs.\nBob likes snow.\n\nA stone.\nThe sea is wide.\n",
    );
    const [found, people] = await Promise.all([
      run("search", texts, "Bob likes snow."),
      run("extract", texts),
    ]);
    const lines = found.trim().split("\n");
    assertEquals(lines.length, 4);
    assertEquals(lines[0], "1.000  Bob likes snow.");
    assertMatch(lines[3], /^\(4 lines, \d+ tokens\)$/);
    assertEquals(people.trim().split("\n").length, 4);
    for (const line of people.trim().split("\n")) {
      assertMatch(line, /^.{0,24}, (\d+|of unknown age), likes .* \(\d+ tokens\)$/);
    }
  });
});
