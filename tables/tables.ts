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
export { openTableInput } from "./input.ts";
export type { Question, TableJob } from "./question.ts";
export {
  type AnswerFields,
  DEFAULT_MAX_TOKENS,
  recordedFields,
  requestFields,
  revisedFields,
} from "./question.ts";
export type { WriteOptions } from "./formats.ts";
export type { ReadOptions } from "./open.ts";
export { TEXT_COLUMN } from "./text.ts";
