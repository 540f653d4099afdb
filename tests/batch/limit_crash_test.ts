import { assert, assertEquals } from "@std/assert";
import { BatchError } from "../../jobs/errors.ts";
import { type BatchResult, type Execute, runBatch } from "../../jobs/run/runner.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";
import { withoutAlias } from "../../jobs/setup.ts";
import { renderParquet } from "../../tables/parquet_write.ts";
import { AnswerForm, openTableInput } from "../../tables/tables.ts";
import { joined } from "../../tables/testing.ts";
import { type Fault, seeded, SimStorage } from "./sim_storage.ts";
import { everyNth } from "../../testing/tier.ts";

/*
 * Small jobs answer their first lines and then the others. Every fault hits them at every file system call; they run again until they are
 * done. An output has the first lines or all lines, is never torn, and counted answers are not asked again.
 */

const FAULTS = ["kill", "powerCut", "EIO"] as const;
const LINES = 7;
const LIMIT = 4;
const PARALLEL = 2;
/** Limits with few lines: allocating for ten million lines takes time in each run. */
const LIMITS = { ...TEST_LIMITS, maxLines: 100 };
const ALIAS = "gpt-4o-mini";

interface Kind {
  readonly input: string | Uint8Array;
  readonly openInput?: ReturnType<typeof openTableInput>;
  readonly faults?: typeof FAULTS[number][];
}

const rowTexts = Array.from(
  { length: LINES },
  (_, n) => n === 2 ? "{" : JSON.stringify({ n, [`k${n % 3}`]: n }),
);

const tableOf = (format: "jsonl" | "parquet") =>
  openTableInput({
    read: { format },
    question: { prompt: "{n}", fields: {} },
    form: new AnswerForm(),
    write: { format },
  });

async function* parquetRows() {
  for (let n = 0; n < LINES; n++) yield [n === 2 ? null : n];
}

const KINDS: Readonly<Record<string, Kind>> = {
  "rows in JSONL": { input: rowTexts.join("\n"), openInput: tableOf("jsonl") },
  "rows in Parquet": {
    input: await joined(renderParquet([{ name: "n", kind: "integer" }], parquetRows())),
    openInput: tableOf("parquet"),
    faults: ["powerCut"],
  },
  "lines with an alias": {
    input: Array.from({ length: LINES }, (_, n) =>
      n === 2 ? "{" : JSON.stringify({
        custom_id: `q${n}`,
        method: "POST",
        url: "/v1/chat/completions",
        body: { model: ALIAS, messages: [{ content: `${n}` }] },
      })).join("\n"),
  },
};

interface Ran {
  readonly result?: BatchResult;
  readonly error?: unknown;
  readonly asked: readonly number[];
}

async function run(storage: SimStorage, { openInput }: Kind, limit: number | undefined): Promise<Ran> {
  const asked: number[] = [];
  const execute: Execute = async ({ body }) => {
    assertEquals(body.model, undefined);
    const n = Number((body.messages as { content: string }[])[0].content);
    asked.push(n);
    for (let i = 0; i < (n * 7) % 5; i++) await Promise.resolve();
    if (n === 1 || n === 6) return { status: 400, body: { error: { message: "no" } } };
    return { status: 200, body: { choices: [{ message: { content: "y".repeat(20 * n) } }] } };
  };
  try {
    const result = await runBatch({
      input: "in",
      output: "out",
      errors: "err",
      openInput,
      limit,
      parallel: PARALLEL,
      limits: LIMITS,
      storage,
      revise: (body) => withoutAlias([ALIAS], body),
      connect: () => Promise.resolve({ execute, settings: { model: "fake" } }),
    });
    return { result, asked };
  } catch (error) {
    return { error, asked };
  }
}

function disk(kind: Kind, seed: number, fault?: (call: number) => Fault): SimStorage {
  const storage = new SimStorage(seeded(seed), fault);
  storage.put("in", kind.input);
  return storage;
}

const contents = (storage: SimStorage) => ["out", "err"].map((path) => storage.bytes(path)?.toHex());

for (const [name, kind] of everyNth(2, Object.entries(KINDS))) {
  Deno.test(`batch run --limit, ${name}: answers are not lost, duplicated or torn after any fault at any call`, async () => {
    const whole = disk(kind, 1);
    const limited = await run(whole, kind, LIMIT);
    assertEquals(
      [limited.result?.state, limited.asked.toSorted()],
      ["limited", [0, 1, 3]],
      `${limited.error}`,
    );
    assertEquals([limited.result!.counts.completed, limited.result!.counts.failed], [2, 2]);
    const first = contents(whole);
    const rest = await run(whole, kind, undefined);
    assertEquals([rest.result?.state, rest.asked.toSorted()], ["done", [4, 5, 6]]);
    const all = contents(whole);
    let ends = 0;
    for (let call = 0; call < whole.calls; call++) {
      for (const how of kind.faults ?? FAULTS) {
        const where = `call ${call}, ${how}`;
        const crashes = how === "kill" || how === "powerCut";
        const storage = disk(kind, call, (n) => n !== call ? "none" : crashes ? "crash" : how);
        const asked: number[] = [];
        let isLost = false;
        for (const limit of [LIMIT, undefined]) {
          let ran = await run(storage, kind, limit);
          asked.push(...ran.asked);
          if (ran.error !== undefined) {
            if (storage.crashed) storage[how as "kill" | "powerCut"]();
            for (const [i, found] of contents(storage).entries()) {
              assert([undefined, first[i], all[i]].includes(found), `${where}: torn`);
            }
            isLost = ran.error instanceof BatchError && ran.error.code === "sync_failed";
            if (isLost) break;
            storage.setFault(() => "none");
            ran = await run(storage, kind, limit);
            asked.push(...ran.asked);
          }
          const ended = limit === undefined ? ["done", "already_done"] : ["limited"];
          assert(ended.includes(ran.result?.state ?? ""), `${where}: ${ran.result?.state}, ${ran.error}`);
          assertEquals(contents(storage), limit === undefined ? all : first, where);
        }
        if (isLost) continue;
        const again = asked.length - new Set(asked).size;
        assert(again <= PARALLEL, `${where}: ${again} lines were asked again`);
        ends += 1;
      }
    }
    assert(ends > 100, `${ends}`);
  });
}
