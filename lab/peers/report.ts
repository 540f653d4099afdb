/** What compy and its peers are asked to do, and what they report of it. */

export interface Work {
  /** Path of the GGUF file. */
  readonly model: string;
  /** Tokens of each prompt, and tokens decoded after it. */
  readonly prefill: number;
  readonly decode: number;
  /** How many sequences are decoded side by side, one setting after the other. */
  readonly sequences: readonly number[];
  readonly threads: number;
}

export interface PeerRow {
  readonly work: string;
  readonly sequences: number;
  /** Of all sequences together. */
  readonly tokens_per_second: number;
  /** Only compy's. */
  readonly share_of_limit?: number;
}

export interface PeerReport {
  readonly rows: readonly PeerRow[];
  /** What computes: a GPU's name, or the CPU's instruction sets that are used; undefined where it is not told. */
  readonly isa?: string;
  /** Only compy's. */
  readonly limits?: { readonly read_gbps: number; readonly int8_gops: number; readonly f32_gflops: number };
  /** Units of 10^6 bytes; undefined where it is not told, as the next. */
  readonly rss_mb?: number;
  readonly load_ms?: number;
}
