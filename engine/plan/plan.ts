/** The compiled form of a model: a flat list of fused ops over named buffers. */
export interface Plan {
  readonly architecture: string;
}
