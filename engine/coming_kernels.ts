/** Native kernels that are being built while engines run in WebAssembly. */
export class ComingKernels {
  /** Resolves to whether they have come; never rejects. */
  readonly arrived: Promise<boolean>;
  #isHere = false;
  #isPending = true;
  /** Engines that may still go over to them. */
  #followers = 0;
  #changed = Promise.withResolvers<void>();
  #turn: Promise<void> = Promise.resolve();

  /** `note` is told what an operator should know, a line each. */
  constructor(arrived: Promise<boolean>, readonly note: (message: string) => void) {
    this.arrived = arrived.then((isHere) => {
      this.#isPending = false;
      return this.#isHere = isHere;
    });
  }

  get isPending(): boolean {
    return this.#isPending;
  }

  get isHere(): boolean {
    return this.#isHere;
  }

  /** An engine is loaded that may go over to them; the returned function says that this is done. */
  follow(): () => void {
    this.#followers++;
    return () => {
      this.#followers--;
      this.#changed.resolve();
      this.#changed = Promise.withResolvers();
    };
  }

  /** Engines go over one after the other: each needs room for two copies of its weights. */
  inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** Resolves when it is decided what computes: all have gone over, or the kernels do not come. */
  async settled(): Promise<void> {
    await this.arrived;
    while (this.#followers > 0) await this.#changed.promise;
  }
}
