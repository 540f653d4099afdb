import { assertEquals, assertThrows } from "@std/assert";
import { asFlags, inFlags } from "../../cli/shared/words.ts";
import { SERVE_SETTINGS } from "../../cli/serve/serve_settings.ts";
import { flagOf } from "../../cli/shared/settings.ts";
import { refuse } from "../../convert/errors.ts";
import type { Settings } from "../../engine/api/errors.ts";
import { unsupportedOnGpu } from "../../engine/backend/webgpu/errors.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { checkTogether } from "../../engine/load/load.ts";
import { MemoryError } from "../../engine/load/memory_error.ts";
import { EngineError, ModelError, ModelRefused } from "../../engine/mod.ts";
import { NO_VECTORS_ON_GPU } from "../../engine/loop/embeddings.ts";
import { LibraryNotFound } from "../../ffi/find.ts";
import { KERNELS } from "../../ffi/names.ts";
import { decodeHeader } from "../../jobs/journal/journal_format.ts";
import { ServiceError } from "../../jobs/types.ts";
import { toCompyError } from "../../lib/errors.ts";
import { KeyRing } from "../../routes/access/keys.ts";
import { toApiError } from "../../routes/core/errors.ts";
import { checkReach } from "../../routes/serve.ts";

function thrown(act: () => unknown): Error {
  return assertThrows(act, Error);
}

const UNFORESEEN = "The server failed on this request; its log says why";
const LARGE = new MemoryError(["8 MB are needed. What fits: ", { ctx: 64 }, ", or ", { kvBytes: 3e6 }], 8e6);

interface Case {
  readonly error: Error;
  readonly flags: string;
  readonly options: string;
  /** The error's message for an HTTP client. Unexpected errors reveal nothing. */
  readonly http: string;
}

const CASES: Record<string, Case> = {
  "options of a model": {
    error: thrown(() => checkTogether({ speculate: "draft" })),
    flags:
      "--speculate draft needs a smaller model of the same vocabulary or a drafter made for the model: name its file with --draft",
    options:
      'speculate: "draft" needs a smaller model of the same vocabulary or a drafter made for the model: name its file with draft',
    http:
      "the server setting speculate=draft needs a smaller model of the same vocabulary or a drafter made for the model: name its file with " +
      "the server setting draft",
  },
  "a request of the engine": {
    error: new EngineError("not_supported", NO_VECTORS_ON_GPU),
    flags: "The GPU does not support embeddings and ranking yet: use --backend cpu",
    options: 'The GPU does not support embeddings and ranking yet: use backend: "cpu"',
    http: "The GPU does not support embeddings and ranking yet: use the server setting backend=cpu",
  },
  "a model file": {
    error: new GgufError("GGUF_HPARAM", ["choose ", { pooling: "last" }], { field: 'key "x"' }),
    flags: 'GGUF_HPARAM key "x": choose --pooling last',
    options: 'GGUF_HPARAM key "x": choose pooling: "last"',
    http: UNFORESEEN,
  },
  "memory": {
    error: LARGE,
    flags: "8 MB are needed. What fits: --ctx 64, or --kv-mb 3",
    options: "8 MB are needed. What fits: ctx: 64, or kvBytes: 3000000",
    http: UNFORESEEN,
  },
  "a model that a server cannot load": {
    error: new ModelError("no_memory_for_model", `Model "a" cannot be loaded: ${LARGE.message}`, {
      cause: new ModelRefused(LARGE, LARGE.needed),
    }),
    flags: 'Model "a" cannot be loaded: 8 MB are needed. What fits: --ctx 64, or --kv-mb 3',
    options: 'Model "a" cannot be loaded: 8 MB are needed. What fits: ctx: 64, or kvBytes: 3000000',
    http:
      'Model "a" cannot be loaded: 8 MB are needed. What fits: the server setting ctx=64, or the server ' +
      "setting kvBytes=3000000",
  },
  "a GPU": {
    error: unsupportedOnGpu("Cannot run this model on the GPU: its embedding is scaled"),
    flags: "Cannot run this model on the GPU: its embedding is scaled; use --backend cpu",
    options: 'Cannot run this model on the GPU: its embedding is scaled; use backend: "cpu"',
    http: UNFORESEEN,
  },
  "a checkpoint": {
    error: thrown(() =>
      refuse("a.safetensors", 'tensor "w"', ["it is large; ", { quantize: "q8_0" }, " takes it"])
    ),
    flags: 'Cannot convert a.safetensors, tensor "w": it is large; --quantize q8_0 takes it',
    options: 'Cannot convert a.safetensors, tensor "w": it is large; quantize: "q8_0" takes it',
    http: UNFORESEEN,
  },
  "a batch": {
    error: thrown(() => decodeHeader("a.journal", new TextEncoder().encode("text".repeat(99)), 396)),
    flags: '"a.journal" is not a batch journal and is left alone; move it away or give another --out',
    options: '"a.journal" is not a batch journal and is left alone; move it away or give another output',
    http: UNFORESEEN,
  },
  "a server's files": {
    error: new ServiceError("quota_exceeded", ["At most 5 bytes (", { maxStorageBytes: undefined }, ")"]),
    flags: "At most 5 bytes (--max-storage-mb)",
    options: "At most 5 bytes (maxStorageBytes)",
    http: "At most 5 bytes (the server setting maxStorageBytes)",
  },
  "a server's address": {
    error: thrown(() => checkReach("0.0.0.0", new KeyRing([]))),
    flags:
      'Cannot listen on "0.0.0.0": an address that other machines reach needs an API key; give --api-keys, ' +
      "--api-key or COMPY_API_KEY, or listen on 127.0.0.1",
    options:
      'Cannot listen on "0.0.0.0": an address that other machines reach needs an API key; give apiKeys, ' +
      "or listen on 127.0.0.1",
    http: UNFORESEEN,
  },
};

for (const [kind, { error, flags, options, http }] of Object.entries(CASES)) {
  Deno.test(`error words: ${kind}: flags, options of the library, and settings of the server over HTTP`, () => {
    assertEquals(inFlags(error), flags);
    const own = toCompyError(error) as Error;
    assertEquals(own.message, options);
    assertEquals(inFlags(own), flags);
    assertEquals(toApiError(error).message, http);
  });
}

Deno.test("error words: a missing native library names the setting for its folder", () => {
  const place = { path: "/a.so", problem: "missing", reason: "not there" } as const;
  const error = new LibraryNotFound(KERNELS, [place]);
  assertEquals(error.message.split(" with ").at(-1), "COMPY_LIBRARY");
  assertEquals(inFlags(error).split(" with ").at(-1), "--library or COMPY_LIBRARY");
});

Deno.test("error words: every flag that a message names for a setting of the server exists", () => {
  const known = new Set(Object.keys(SERVE_SETTINGS).map((name) => `--${flagOf(name)}`));
  const settings: Settings = {
    ctx: undefined,
    parallel: undefined,
    kvBytes: undefined,
    backend: undefined,
    arithmetic: undefined,
    accuracy: undefined,
    pooling: undefined,
    speculate: undefined,
    draft: undefined,
    promptCache: undefined,
    memoryBytes: undefined,
    data: undefined,
    maxStorageBytes: undefined,
    maxUploadBytes: undefined,
    allowedHosts: undefined,
    corsOrigins: undefined,
    maxConnections: undefined,
  };
  assertEquals(asFlags(settings).split(" ").filter((flag) => !known.has(flag)), []);
});
