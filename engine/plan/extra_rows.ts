/** Rows of images that a decoder takes. Each has the decoder's width, once for the embedding and once per deep layer. */
export interface ImageRows {
  /** Number of first layers whose output gets a part of the row added. */
  readonly deepstack: number;
}

/** Rows that a model's layers copy for a drafter from another file. */
export interface RowsWanted {
  /** Layers whose input rows the drafter reads; the number of layers stands for the last layer's output. */
  readonly layers: readonly number[];
}
