/** Tables as the input and output of jobs, part by part, for compy's own commands; programs say it with `BatchTable`. */
export {
  type AnswerFields,
  AnswerForm,
  DEFAULT_MAX_TOKENS,
  isSeparator,
  openTableInput,
  OUTPUT_FORMATS,
  type OutputFormat,
  outputFormatOf,
  recordedFields,
  requestFields,
  revisedFields,
  separatorOf,
  TABLE_FORMATS,
  tableFormatOf,
  TEXT_COLUMN,
} from "../tables/tables.ts";
