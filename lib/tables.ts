/** The parts of table jobs, for compy's own commands. Other programs use `BatchTable`. */
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
