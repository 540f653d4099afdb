/** Files of rows as the input of a batch job, whose answers stand beside the rows in its output. */
export { AnswerForm } from "./answers.ts";
export { openTableInput, type Question, type TableJob } from "./input.ts";
export { OUTPUT_FORMATS, type OutputFormat, type WriteOptions } from "./render.ts";
export { type ReadOptions, TABLE_FORMATS, type TableFormat } from "./table.ts";
export { TEXT_COLUMN } from "./text.ts";
