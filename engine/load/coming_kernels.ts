/** Native kernels that are being built while engines run in WebAssembly. */
export class ComingKernels {
  /** Promise for whether the native kernels were built. It never rejects. */
  readonly arrived: Promise<boolean>;
  #isHere = false;
  #isPending = true;
  /** Number of engines that may still move to the native kernels. */
  #followers = 0;
  #changed = Promise.withResolvers<void>();
  #turn: Promise<void> = Promise.resolve();

  /** `arrived`: see the property. `note` receives messages for the operator, one line each. */
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

  /** Registers an engine that may move to the native kernels. Call the returned function when its move has ended. */
  follow(): () => void {
    this.#followers++;
    return () => {
      this.#followers--;
      this.#changed.resolve();
      this.#changed = Promise.withResolvers();
    };
  }

  /** Runs engines' moves one after another: each needs memory for two copies of a model's weights. */
  inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** Resolves when the kernels in use are final: all engines have moved, or there will be no native kernels. */
  async settled(): Promise<void> {
    await this.arrived;
    while (this.#followers > 0) await this.#changed.promise;
  }
}
