/** Files of rows as the input of a batch job. The output has the answers beside the rows. */
export { AnswerForm } from "./answers.ts";
export {
  isSeparator,
  OUTPUT_FORMATS,
  type OutputFormat,
  outputFormatOf,
  separatorOf,
  TABLE_FORMATS,
  type TableFormat,
  tableFormatOf,
} from "./formats.ts";
export { openTableInput, type Question, type TableJob } from "./input.ts";
export {
  type AnswerFields,
  DEFAULT_MAX_TOKENS,
  recordedFields,
  requestFields,
  revisedFields,
} from "./question.ts";
export type { WriteOptions } from "./render.ts";
export type { ReadOptions } from "./table.ts";
export { TEXT_COLUMN } from "./text.ts";
