import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { splitGguf } from "../testing/split_gguf.ts";
import { PullError } from "./errors.ts";
import { offer, pull } from "./pull.ts";
import type { PullEvent, PullOptions } from "./types.ts";
import { listModels, removeModel } from "./store.ts";
import { type Fault, type SeenRequest, TestHub, type TestHubOptions } from "./testing_hub.ts";
import { sha256, testModel } from "./testing_models.ts";

const MODEL = testModel(1, 3_000_000);
const OTHER = testModel(2, 3_000_000);
const SMALLER = testModel(3, 300_000);
const REPO = "me/Tiny-GGUF";
const SOURCE = `hf:${REPO}:Q8_0`;
const FILE = "Tiny-Q8_0.gguf";
const PACE = { baseMs: 2, capMs: 20, attempts: 5, totalMs: 2000, stallMs: 400 };

interface World {
  readonly hub: TestHub;
  readonly folder: string;
  readonly events: PullEvent[];
  run(options?: Partial<PullOptions>): ReturnType<typeof pull>;
}

async function withHub(
  test: (world: World) => Promise<void>,
  options: Partial<TestHubOptions> = {},
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const repositories = { [REPO]: { [FILE]: MODEL } };
  try {
    await using hub = new TestHub({ repositories, ...options });
    const events: PullEvent[] = [];
    const run = (more: Partial<PullOptions> = {}) =>
      pull({
        source: SOURCE,
        models: folder,
        endpoint: hub.endpoint,
        pace: PACE,
        freeMemory: 1e9,
        onEvent: (event) => events.push(event),
        ...more,
      });
    await test({ hub, folder, events, run });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function assertHas(folder: string, bytes: Uint8Array, file = FILE): Promise<void> {
  assertEquals(sha256(await Deno.readFile(join(folder, file))), sha256(bytes));
}

async function refusal(work: Promise<unknown>, code: string): Promise<string> {
  const error = await assertRejects(() => work, PullError);
  assertEquals(error.code, code, error.message);
  return error.message;
}

/** Injects each fault once into the file's requests. */
function once(...faults: Fault[]): (request: SeenRequest) => Fault | undefined {
  return ({ host }) => host === "cdn" ? faults.shift() : undefined;
}

Deno.test("pull: downloads every byte once, and finds the model when asked again", async () => {
  await withHub(async ({ hub, folder, events, run }) => {
    const { name, path, bytes, already, fetched, receipt } = await run();
    assertEquals([name, path, bytes, already], ["Tiny-Q8_0", join(folder, FILE), MODEL.length, false]);
    assertEquals([fetched, hub.sent], [MODEL.length, MODEL.length]);
    assertEquals(receipt.files[0].parts, [{ path: FILE, sha256: sha256(MODEL), promised: true }]);
    await assertHas(folder, MODEL);
    assertEquals((await listModels(folder)).unfinished, []);
    const kinds = new Set(events.map(({ kind }) => kind));
    assertEquals([...kinds].sort(), ["begin", "check", "download", "needs"]);
    const before = hub.sent;
    assertEquals((await run()).already, true);
    assertEquals(hub.sent, before);
  });
});

const FAULTS: Record<string, Fault[]> = {
  "a status of 503": [{ kind: "status", status: 503 }],
  "a status of 429 with a wait": [{ kind: "status", status: 429, retryAfter: "0" }],
  "a signature that has ended": [{ kind: "status", status: 403 }],
  "a dropped connection": [{ kind: "drop", after: 400_000 }, { kind: "drop", after: 70_000 }],
  "a connection that stalls": [{ kind: "stall", after: 200_000 }],
  "a shorter range": [{ kind: "short range" }, { kind: "short range" }],
  "another range": [{ kind: "other range" }],
  "a wrong total length": [{ kind: "wrong length", by: 5 }],
  "a length of nothing": [{ kind: "wrong length", by: -MODEL.length }],
  "an absurd length": [{ kind: "wrong length", by: 2 ** 52 }],
  "packed bytes": [{ kind: "encoding" }],
  "a page instead of the file": [{ kind: "page" }],
};
for (const [what, faults] of Object.entries(FAULTS)) {
  Deno.test(`pull: ${what} downloads no byte twice`, async () => {
    const wasted = what.startsWith("a page") ? 100 : 0;
    await withHub(async ({ folder, run }) => {
      const { fetched } = await run();
      assert(fetched - MODEL.length <= wasted, `${fetched} bytes of ${MODEL.length}`);
      await assertHas(folder, MODEL);
    }, { fault: once(...faults) });
  });
}

Deno.test("pull: retries faults before the first byte as it retries later ones", async () => {
  for (const at of [0, 1, 3]) {
    let number = 0;
    await withHub(async ({ folder, run }) => {
      await run();
      await assertHas(folder, MODEL);
    }, { fault: () => number++ === at ? { kind: "status", status: 502 } : undefined });
  }
});

Deno.test("pull: detects a corrupt byte and fetches the file again", async () => {
  await withHub(async ({ folder, events, run }) => {
    const { fetched } = await run();
    assertEquals(fetched, 2 * MODEL.length);
    await assertHas(folder, MODEL);
    const shares = events.flatMap((event) => event.kind === "download" ? [event.done / event.total] : []);
    assertEquals(shares, shares.toSorted((a, b) => a - b), "the bar never goes back");
  }, { fault: once({ kind: "corrupt" }) });
  await withHub(async ({ folder, run }) => {
    assertStringIncludes(
      await refusal(run(), "PULL_CHECKSUM"),
      "something between the hub and this machine changes the data",
    );
    assertEquals(await listModels(folder), { models: [], unfinished: [] });
  }, { fault: ({ range }) => range && range[0] > 0 ? { kind: "corrupt" } : undefined });
});

Deno.test("pull: without ranges, fetches the file once, and again only as needed to resume", async () => {
  const always = ({ host }: SeenRequest): Fault | undefined =>
    host === "cdn" ? { kind: "ignore range" } : undefined;
  await withHub(async ({ folder, run }) => {
    assertEquals((await run()).fetched, MODEL.length);
    await assertHas(folder, MODEL);
  }, { fault: always });
  let number = 0;
  await withHub(async ({ folder, run }) => {
    await run();
    await assertHas(folder, MODEL);
  }, {
    fault: (request) =>
      always(request) && (number++ === 2 ? { kind: "drop", after: 1_000_000 } : { kind: "ignore range" }),
  });
  // The server stops supporting ranges midway.
  await withHub(async ({ folder, run }) => {
    await run();
    await assertHas(folder, MODEL);
  }, {
    fault: ({ host, range }) =>
      host === "cdn" && range && range[0] > 0 ? { kind: "ignore range" } : undefined,
  });
});

Deno.test("pull: retries after a wrong length", async () => {
  for (const by of [5, 2_000_000, -5, -1_000_000]) {
    await withHub(async ({ hub, folder, run }) => {
      await run({ source: `${hub.cdn}/${REPO}/${FILE}` });
      await assertHas(folder, MODEL);
    }, { fault: once({ kind: "wrong length", by }) });
  }
});

Deno.test("pull: a login page midway does not cost earlier bytes", async () => {
  let number = 0;
  await withHub(async ({ hub, folder, run }) => {
    const { fetched } = await run({ source: `${hub.cdn}/${REPO}/${FILE}` });
    assertEquals(fetched, MODEL.length);
    await assertHas(folder, MODEL);
  }, { fault: ({ host }) => host === "cdn" && number++ === 2 ? { kind: "page" } : undefined });
});

Deno.test("pull: fetches the new version of a file that changes midway", async () => {
  for (const source of [SOURCE, "url"]) {
    let hub: TestHub;
    let number = 0;
    const fault = ({ host }: SeenRequest) => {
      if (host === "cdn" && number++ === 2) hub.change(`${REPO}/${FILE}`, OTHER);
      return undefined;
    };
    await withHub(async (world) => {
      hub = world.hub;
      await world.run({ source: source === "url" ? `${hub.cdn}/${REPO}/${FILE}` : source });
      await assertHas(world.folder, OTHER);
    }, { fault });
  }
});

Deno.test("pull: gives up on a file that keeps changing", async () => {
  let hub: TestHub;
  let version = 0;
  await withHub(async (world) => {
    hub = world.hub;
    assertStringIncludes(await refusal(world.run(), "PULL_CHANGED"), "try again later");
  }, {
    fault: ({ host, range }) => {
      if (host === "cdn" && range![0] > 0) hub.change(`${REPO}/${FILE}`, version++ % 2 ? MODEL : OTHER);
      return undefined;
    },
  });
});

Deno.test("pull: resumes a stopped download, and restarts it if the file has changed", async () => {
  for (const changed of [false, true]) {
    await withHub(async ({ hub, folder, events, run }) => {
      const stop = new AbortController();
      const reason = new Error("stopped");
      const onEvent = (event: PullEvent) => {
        if (event.kind === "download" && event.done > 1_500_000) stop.abort(reason);
      };
      assertEquals(await assertRejects(() => run({ signal: stop.signal, onEvent })), reason);
      const [{ name, done }] = (await listModels(folder)).unfinished;
      assertEquals(name, "Tiny-Q8_0");
      assert(done >= 1_500_000, `${done} bytes are kept`);
      if (changed) hub.change(`${REPO}/${FILE}`, OTHER);
      const { fetched } = await run();
      await assertHas(folder, changed ? OTHER : MODEL);
      assertEquals(fetched, MODEL.length - (changed ? 0 : done));
      const notes = events.flatMap((event) => event.kind === "note" ? [event.message] : []);
      assertEquals(notes.length, changed ? 1 : 0);
    });
  }
});

Deno.test("pull: drops the bytes of an earlier run when the server states neither hash nor version", async () => {
  for (const nameless of [false, true]) {
    await withHub(async ({ hub, folder, run }) => {
      const source = `${hub.cdn}/${REPO}/${FILE}`;
      const stop = new AbortController();
      const onEvent = (event: PullEvent) =>
        event.kind === "download" && event.done > 1_500_000 && stop.abort();
      await assertRejects(() => run({ source, signal: stop.signal, onEvent }));
      const { fetched, receipt } = await run({ source });
      await assertHas(folder, MODEL);
      assertEquals(fetched === MODEL.length, nameless);
      assertEquals(receipt.files[0].parts, [{ path: FILE, sha256: sha256(MODEL), promised: false }]);
    }, { nameless });
  }
});

Deno.test("pull: checks an address against the user's hash", async () => {
  await withHub(async ({ hub, folder, run }) => {
    const source = `${hub.cdn}/${REPO}/${FILE}`;
    await refusal(run({ source, sha256: sha256(OTHER) }), "PULL_CHECKSUM");
    await run({ source, sha256: sha256(MODEL).toUpperCase() });
    await assertHas(folder, MODEL);
  });
});

Deno.test("pull: handles models in several files, and files in several parts", async () => {
  const shards = splitGguf(MODEL, 3);
  const names = shards.map((_, i) => `Big-Q8_0-0000${i + 1}-of-00003.gguf`);
  const files = {
    ...Object.fromEntries(names.map((name, i) => [`Q8_0/${name}`, shards[i]])),
    "Big-Q6_K.gguf.part1of2": MODEL.slice(0, 1_234_567),
    "Big-Q6_K.gguf.part2of2": MODEL.slice(1_234_567),
    "Lost-Q4_0-00001-of-00002.gguf": SMALLER,
  };
  await withHub(async ({ hub, folder, run }) => {
    for (
      const fetched of [
        await run({ source: `hf:${REPO}:Q8_0` }),
        await run({ source: `${hub.cdn}/${REPO}/Q8_0/${names[1]}`, as: "again" }),
      ]
    ) {
      assertEquals(fetched.bytes, shards.reduce((sum, { length }) => sum + length, 0));
      for (const [i, { name }] of fetched.receipt.files.entries()) await assertHas(folder, shards[i], name);
    }
    assertEquals((await run({ source: `hf:${REPO}:Q6_K` })).fetched, MODEL.length);
    await assertHas(folder, MODEL, "Big-Q6_K.gguf");
    const lost = await refusal(run({ source: `hf:${REPO}:Q4_0` }), "PULL_NOT_FOUND");
    assertStringIncludes(lost, "1 of 2 files missing");
    assertEquals((await listModels(folder)).models.map(({ name }) => name), [
      "Big-Q6_K",
      "Big-Q8_0",
      "again",
    ]);
    await removeModel(folder, "Big-Q8_0");
    assertEquals((await listModels(folder)).models.map(({ name }) => name), ["Big-Q6_K", "again"]);
  }, { repositories: { [REPO]: files } });
});

Deno.test("pull: asks which of several models to pull, and shows the memory need of each", async () => {
  const repositories = { [REPO]: { [FILE]: MODEL, "Tiny-Q4_K_M.gguf": SMALLER } };
  await withHub(async ({ hub, folder, run }) => {
    const source = `hf:${REPO}`;
    assertStringIncludes(await refusal(run({ source }), "PULL_CHOICE"), `name one of "Q4_K_M", "Q8_0"`);
    const options = { source, models: folder, endpoint: hub.endpoint, pace: PACE, freeMemory: 1e9 };
    const all = await offer(options);
    assertEquals(all.recommended?.choice.quantisation, "Q4_K_M");
    assertEquals(all.choices.map(({ fits, estimated }) => [fits, estimated]), [[true, false], [true, true]]);
    assertEquals((await listModels(folder)).unfinished, []);
    const small = await offer({ ...options, freeMemory: 1_000_000 });
    assertEquals(small.choices.map(({ fits }) => fits), [false, false]);
    await run({ source, choose: ({ choices }) => Promise.resolve(choices[1].choice) });
    await assertHas(folder, MODEL);
    assertEquals(await listModels(folder).then(({ unfinished }) => unfinished), []);
  }, { repositories });
});

Deno.test("pull: reports a lack of memory or disk space before downloading", async () => {
  await withHub(async ({ hub, run }) => {
    const header = 1_048_576;
    assertStringIncludes(await refusal(run({ freeMemory: 1_000_000 }), "PULL_MEMORY"), "--anyway");
    assertEquals(hub.sent, header);
    const disk = await refusal(run({ freeSpace: () => Promise.resolve(10_000_000) }), "PULL_DISK");
    assertStringIncludes(disk, "Not enough space");
    assertEquals(hub.sent, header);
    const { fetched } = await run({ freeMemory: 1_000_000, anyway: true });
    assertEquals(fetched, MODEL.length - header, "the header is not fetched again");
  });
});

Deno.test("pull: refuses files that are not models by their first bytes", async () => {
  const page = new TextEncoder().encode("<html>".repeat(500_000));
  const pointer = new TextEncoder().encode(
    `version https://git-lfs.github.com/spec/v1\noid sha256:${"0".repeat(64)}\nsize 9\n`,
  );
  const cut = MODEL.slice(0, 2_000_000);
  const strange = testModel(1, 3_000_000);
  strange.set(new TextEncoder().encode("what?"), strange.findIndex((_, i) => i > 60 && strange[i] === 108)); // "llama"
  await withHub(async ({ hub, folder, run }) => {
    assertStringIncludes(
      await refusal(run({ source: `hf:${REPO}:page.gguf` }), "PULL_MODEL"),
      "this is an HTML page",
    );
    assert(hub.sent <= 1_100_000);
    assertStringIncludes(
      await refusal(run({ source: `hf:${REPO}:pointer.gguf` }), "PULL_MODEL"),
      "this is a Git LFS pointer",
    );
    await refusal(run({ source: `hf:${REPO}:cut.gguf`, anyway: true }), "PULL_MODEL");
    assertStringIncludes(
      await refusal(run({ source: `hf:${REPO}:strange.gguf` }), "PULL_MODEL"),
      "compy cannot run this model",
    );
    await run({ source: `hf:${REPO}:strange.gguf`, anyway: true });
    await assertHas(folder, strange, "strange.gguf");
  }, {
    repositories: {
      [REPO]: { "page.gguf": page, "pointer.gguf": pointer, "cut.gguf": cut, "strange.gguf": strange },
    },
  });
});

Deno.test("pull: does not replace a file that came from another source", async () => {
  const repositories = { [REPO]: { [FILE]: MODEL }, "you/Tiny-GGUF": { [FILE]: OTHER } };
  await withHub(async ({ folder, run }) => {
    await Deno.writeTextFile(join(folder, FILE), "mine");
    assertStringIncludes(await refusal(run(), "PULL_EXISTS"), "--as NAME");
    await refusal(removeModel(folder, "Tiny-Q8_0"), "PULL_EXISTS");
    assertEquals(await Deno.readTextFile(join(folder, FILE)), "mine");
    await Deno.remove(join(folder, FILE));
    await run();
    await refusal(run({ source: "hf:you/Tiny-GGUF" }), "PULL_EXISTS");
    assertEquals((await run({ source: "hf:you/Tiny-GGUF", as: "yours" })).name, "yours");
    await assertHas(folder, OTHER, "yours.gguf");
    await refusal(removeModel(folder, "../x"), "PULL_SOURCE");
    await refusal(removeModel(folder, "nobody"), "PULL_NOT_FOUND");
  }, { repositories });
});

Deno.test("pull: keeps two files of a repository with the same name apart", async () => {
  const files = { "Q8_0/Tiny.gguf": MODEL, "Q4_0/Tiny.gguf": SMALLER };
  await withHub(async ({ folder, run }) => {
    await run({ source: SOURCE });
    const message = await refusal(run({ source: `hf:${REPO}:Q4_0` }), "PULL_EXISTS");
    assertStringIncludes(message, `was pulled from ${SOURCE} ("Q8_0/Tiny.gguf")`);
    await run({ source: `hf:${REPO}:Q4_0`, as: "Tiny-Q4_0" });
    await assertHas(folder, MODEL, "Tiny.gguf");
    await assertHas(folder, SMALLER, "Tiny-Q4_0.gguf");
  }, { repositories: { [REPO]: files } });
});

Deno.test("pull: a new version replaces the old one", async () => {
  await withHub(async ({ hub, folder, run }) => {
    await run();
    hub.change(`${REPO}/${FILE}`, OTHER);
    assertEquals((await run()).already, false);
    await assertHas(folder, OTHER);
    await Deno.truncate(join(folder, FILE), 1000);
    assertEquals((await run()).already, false, "it is no longer whole");
    await assertHas(folder, OTHER);
  });
});

Deno.test("pull: sends the token to the hub only, not to redirect targets", async () => {
  await withHub(async ({ hub, run }) => {
    assertStringIncludes(await refusal(run(), "PULL_DENIED"), "HF_TOKEN");
    assertStringIncludes(await refusal(run({ token: "wrong" }), "PULL_DENIED"), "may not read it");
    hub.requests.length = 0;
    await run({ token: "secret" });
    for (const { host, authorization } of hub.requests) {
      assertEquals(authorization, host === "hub" ? "Bearer secret" : null);
    }
    assert(hub.requests.some(({ host }) => host === "cdn"));
  }, { token: "secret" });
});

const HOSTILE: [what: string, fault: Fault, message: string][] = [
  ["an open line", { kind: "redirect", to: "http://example.org/a.gguf" }, "must be an https address"],
  ["a file of this machine", { kind: "redirect", to: "file:///etc/passwd" }, "must be an https address"],
  ["a user's name", { kind: "redirect", to: "http://a:b@127.0.0.1/a.gguf" }, "user name"],
  [
    "a long address",
    { kind: "redirect", to: `https://example.org/${"a".repeat(20_000)}` },
    "20020 characters",
  ],
];
Deno.test("pull: refuses unsafe and endless redirects", async () => {
  for (const [what, fault, message] of HOSTILE) {
    await withHub(async ({ run }) => {
      assertStringIncludes(await refusal(run(), "PULL_PROTOCOL"), message, what);
    }, { fault: ({ path }) => path.includes("resolve") ? fault : undefined });
  }
  await withHub(async ({ run }) => {
    assertStringIncludes(await refusal(run(), "PULL_PROTOCOL"), "redirects more than 10 times");
  }, { fault: ({ path }) => path.includes("resolve") ? { kind: "redirect", to: "?again" } : undefined });
});

Deno.test("pull: refuses invalid repository listings", async () => {
  const cases: [
    change: (listing: { sha: string; siblings: { rfilename: string; size?: number }[] }) => unknown,
    why: string,
  ][] = [
    [(listing) => ({ ...listing, siblings: [{ rfilename: "../../x.gguf", size: 1 }] }), "leaves its folder"],
    [(listing) => ({ ...listing, siblings: [{ rfilename: "/etc/x.gguf", size: 1 }] }), "leaves its folder"],
    [
      (listing) => ({ ...listing, siblings: [{ rfilename: "x.gguf", size: 2 ** 50 }] }),
      "more than any model",
    ],
    [(listing) => ({ ...listing, siblings: [{ rfilename: "x.gguf", size: -1 }] }), "not as expected"],
    [(listing) => ({ ...listing, sha: "../../.." }), "not as expected"],
    [() => ({}), "not as expected"],
  ];
  for (const [listing, why] of cases) {
    await withHub(async ({ run }) => {
      assertStringIncludes(await refusal(run({ source: `hf:${REPO}` }), "PULL_PROTOCOL"), why);
    }, { listing });
  }
  await withHub(async ({ run }) => {
    assertStringIncludes(await refusal(run({ source: `hf:${REPO}` }), "PULL_NOT_FOUND"), "has no GGUF files");
  }, { listing: (listing) => ({ ...listing, siblings: [] }) });
  await withHub(async ({ run }) => {
    await refusal(run({ source: "hf:no/body" }), "PULL_NOT_FOUND");
    await refusal(run({ source: `hf:${REPO}:Q2_K` }), "PULL_NOT_FOUND");
  });
});

Deno.test("pull: gives up on lengths that stay wrong and on silent hubs", async () => {
  await withHub(async ({ run }) => {
    assertStringIncludes(await refusal(run(), "PULL_NETWORK"), "the hub's list says");
  }, { fault: ({ host }) => host === "cdn" ? { kind: "wrong length", by: 7 } : undefined });
  await withHub(async ({ run }) => {
    assertStringIncludes(await refusal(run(), "PULL_NETWORK"), "answers 500");
  }, { fault: () => ({ kind: "status", status: 500 }) });
  await withHub(async ({ run }) => {
    assertStringIncludes(await refusal(run(), "PULL_NETWORK"), "asks for a wait of 17 minutes");
  }, { fault: () => ({ kind: "status", status: 429, retryAfter: "1000" }) });
  await withHub(async ({ run }) => {
    assertStringIncludes(
      await refusal(run({ endpoint: "http://127.0.0.1:1" }), "PULL_NETWORK"),
      "cannot reach 127.0.0.1:1",
    );
  });
});

Deno.test("pull: one of two concurrent pulls refuses, and the other succeeds", async () => {
  await withHub(async ({ folder, run }) => {
    const [first, second] = await Promise.allSettled([run(), run()]);
    const refused = [first, second].filter((result) => result.status === "rejected");
    assertEquals(refused.length, 1);
    assertStringIncludes(refused[0].reason.message, "is pulling");
    await assertHas(folder, MODEL);
  }, { delayMs: 5 });
});

Deno.test("pull: recovers from a crash while moving files into place", async () => {
  const shards = splitGguf(MODEL, 2);
  const names = shards.map((_, i) => `Big-Q8_0-0000${i + 1}-of-00002.gguf`);
  const files = Object.fromEntries(names.map((name, i) => [name, shards[i]]));
  await withHub(async ({ hub, folder, run }) => {
    await run();
    const begun = join(folder, ".unfinished", "Big-Q8_0");
    await Deno.mkdir(begun, { recursive: true });
    await Deno.rename(join(folder, ".pulled", "Big-Q8_0.json"), join(begun, "placing.json"));
    await Deno.rename(join(folder, names[1]), join(begun, names[1]));
    const before = hub.sent;
    assertEquals((await run()).already, true);
    assertEquals(hub.sent, before);
    for (const [i, name] of names.entries()) await assertHas(folder, shards[i], name);
    assertEquals((await listModels(folder)).unfinished, []);
  }, { repositories: { [REPO]: files } });
});
