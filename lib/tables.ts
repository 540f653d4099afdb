/** Tables as the input and output of jobs, part by part, for compy's own commands; programs say it with `BatchTable`. */
export {
  AnswerForm,
  isSeparator,
  openTableInput,
  OUTPUT_FORMATS,
  type OutputFormat,
  outputFormatOf,
  separatorOf,
  TABLE_FORMATS,
  tableFormatOf,
  TEXT_COLUMN,
} from "../tables/tables.ts";
