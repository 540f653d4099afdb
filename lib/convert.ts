/** Converts checkpoints of Hugging Face and MLX to GGUF files, for compy's own commands. */
export {
  convertCheckpoint,
  ConvertError,
  type ConvertReport,
  convertVision,
  QUANTIZE_TO,
  type QuantizeTo,
  type TensorReport,
  TOWER_TYPES,
  writeImportance,
} from "../convert/convert.ts";
