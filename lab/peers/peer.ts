/** The programs that compy is compared with on one machine (`deno task bench:peers`). */
import { basename, fromFileUrl, join, resolve } from "@std/path";
import { exists, installPeer, PEER, PEER_VERSION, type PeerBackend, peerGpu } from "../peer.ts";
import { ROOT, run, say, UsageError } from "../../bench/shell.ts";
import { runLlamaBench } from "./llama_bench.ts";
import type { PeerReport, Work } from "./report.ts";

export interface Peer {
  /** The peer's name, with its version if known. */
  readonly name: string;
  /** Installs the peer's missing parts. */
  prepare(): Promise<void>;
  measure(work: Work): Promise<PeerReport>;
}

/** Version of the PyPI packages, which were released together. */
const OPENVINO_VERSION = "2026.4.1.0";
const OPENVINO_PACKAGES = [
  `openvino-genai==${OPENVINO_VERSION}`,
  `openvino-tokenizers==${OPENVINO_VERSION}`,
  "openvino==2026.4.1",
  "gguf==0.19.0",
  "numpy==2.4.6",
];

export const PEER_CHOICES = "llama.cpp, openvino or llama-bench=PATH";

/** Returns the peer that --peer names. Only a user's own program accepts `more` arguments. Throws UsageError. */
export function peerOf(name: string, backend: PeerBackend, more: readonly string[], folder: string): Peer {
  const program = name.match(/^llama-bench=(.+)$/)?.[1];
  if (!program && more.length > 0) throw new UsageError("--peer-args is for --peer llama-bench=PATH only");
  if (backend === "webgpu" && name !== "llama.cpp") {
    throw new UsageError(`--backend webgpu is for --peer llama.cpp only (got --peer ${name})`);
  }
  if (program) return llamaBench(resolve(folder, program), more);
  if (name === "llama.cpp") return llamaCpp(backend);
  if (name === "openvino") return openvino();
  throw new UsageError(`--peer must be ${PEER_CHOICES} (got "${name}")`);
}

/** Returns llama.cpp as the npm package node-llama-cpp ships it, prebuilt. */
function llamaCpp(backend: PeerBackend): Peer {
  const gpu = backend === "webgpu" ? peerGpu() : false;
  return {
    name: `${PEER} ${PEER_VERSION}`,
    async prepare() {
      await installPeer(backend);
    },
    async measure(work) {
      const settings = JSON.stringify({ ...work, gpu });
      return lastLine(await run("node", [here("llama_cpp_speed.mjs"), settings], await installPeer(backend)));
    },
  };
}

/** Returns OpenVINO GenAI as PyPI ships it, in its own virtual environment. */
function openvino(): Peer {
  const folder = join(ROOT, ".cache", `openvino-genai-${OPENVINO_VERSION}`);
  const python = join(folder, "bin", "python");
  return {
    name: `OpenVINO GenAI ${OPENVINO_VERSION}`,
    async prepare() {
      const done = join(folder, "installed");
      if (await exists(done)) return;
      say(`Installing openvino-genai ${OPENVINO_VERSION} into ${folder} …`);
      await run("python3", ["-m", "venv", folder]);
      await run(python, ["-m", "pip", "install", "--quiet", ...OPENVINO_PACKAGES]);
      await Deno.writeTextFile(done, "");
    },
    async measure(work) {
      return lastLine(await run(python, [here("openvino_speed.py"), JSON.stringify(work)]));
    },
  };
}

/** Returns a user's own program as a peer. */
function llamaBench(program: string, more: readonly string[]): Peer {
  return {
    name: [basename(program), ...more].join(" "),
    async prepare() {
      if (!await exists(program)) throw new Error(`Cannot find a program at ${program} (--peer)`);
    },
    measure: (work) => runLlamaBench(program, more, work),
  };
}

function here(name: string): string {
  return fromFileUrl(new URL(name, import.meta.url));
}

/** Returns the report in a runner's last line of output. Libraries may print lines before it. */
function lastLine(output: string): PeerReport {
  return JSON.parse(output.trim().split("\n").at(-1)!);
}
