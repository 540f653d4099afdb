import type { DeviceLoss } from "../device/device_loss.ts";
import {
  type AnswerBuffers,
  type CandidateDispatches,
  candidateDispatches,
} from "../ops/logits/candidates.ts";
import type { Dispatch } from "./dispatch.ts";
import type { DispatchWriter } from "./dispatch_writer.ts";
import type { StepData } from "./step_data.ts";

/** Initial bytes of the buffers for requests and answers. */
const FIRST_BYTES = 1 << 16;

/** Holds a step's requests for logits and its answers. Both buffers grow with the steps' requests. */
export class Answers {
  #buffers!: AnswerBuffers;
  #dispatches!: CandidateDispatches;

  private constructor(private readonly writer: DispatchWriter) {}

  /** Creates the buffers. Throws GpuError if the GPU lacks memory. */
  static async make(writer: DispatchWriter): Promise<Answers> {
    const answers = new Answers(writer);
    await answers.#allocate(FIRST_BYTES, FIRST_BYTES);
    return answers;
  }

  get buffers(): AnswerBuffers {
    return this.#buffers;
  }

  /** All dispatches that any step may need to choose tokens. */
  get dispatches(): Dispatch[] {
    return Object.values<Dispatch>({ ...this.#dispatches });
  }

  /** Returns the dispatches from logits to candidates that a step needs, in order. */
  choosing(data: StepData): Dispatch[] {
    const { parts, adjust, races, candidates, draw } = this.#dispatches;
    return [
      parts,
      ...data.adjusts ? [adjust] : [],
      ...data.wholeDraws ? [races] : [],
      candidates,
      ...data.draws ? [draw] : [],
    ];
  }

  /** Grows the buffers for a step's answers and writes its logits requests. */
  async upload({ wants, answerWords, chosen }: StepData): Promise<void> {
    const { buffers } = this;
    if (buffers.wants.size < wants.byteLength || buffers.answers.size < 4 * answerWords) {
      const { memory } = this.writer.context;
      memory.free(buffers.wants);
      memory.free(buffers.answers);
      await this.#allocate(
        Math.max(buffers.wants.size, 2 * wants.byteLength),
        Math.max(buffers.answers.size, 8 * answerWords),
      );
    }
    if (chosen.length > 0) this.writer.context.device.queue.writeBuffer(this.#buffers.wants, 0, wants);
  }

  /**
   * Writes grammar masks as they arrive. Returns false if `stop` resolves first. Throws RangeError for a mask of a
   * wrong length.
   */
  async uploadMasks({ masks }: StepData, stop: Promise<"stop">, loss: DeviceLoss): Promise<boolean> {
    const { device, plan } = this.writer.context;
    const length = Math.ceil(plan.vocabSize / 32);
    for (const { at, mask } of masks) {
      const words = await loss.or(Promise.race([mask, stop]));
      if (words === "stop") return false;
      if (words.length !== length) {
        throw new RangeError(`A mask must have ${length} words (got ${words.length})`);
      }
      device.queue.writeBuffer(this.#buffers.wants, 4 * at, words.slice());
    }
    return true;
  }

  async #allocate(wantBytes: number, answerBytes: number): Promise<void> {
    const { memory } = this.writer.context;
    const wants = await memory.storage("the requests for logits", wantBytes);
    const answers = await memory.storage("the candidates", answerBytes);
    this.#buffers = { wants, answers };
    this.#dispatches = await candidateDispatches(this.writer, this.#buffers);
  }
}
