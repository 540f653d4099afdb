/** Bytes per element of each data type. */
export const DTYPES = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  F8_E8M0: 1,
  U16: 2,
  I16: 2,
  F16: 2,
  BF16: 2,
  U32: 4,
  I32: 4,
  F32: 4,
  U64: 8,
  I64: 8,
  F64: 8,
} as const;
export type Dtype = keyof typeof DTYPES;

/** A tensor of a safetensors file. Its byte range is checked to lie within the file. */
export interface SafeTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[]; // the contiguous dimension last
  readonly file: string;
  /** Offset of the tensor from the start of the file. */
  readonly offset: number;
  readonly byteLength: number;
  /** The checkpoint's format of a tensor that is computed from others. */
  readonly format?: string;
  /** Fills `into` from byte `offset` on, for a tensor that is computed from others. */
  readonly compute?: (offset: number, into: Uint8Array) => void;
  /** Type to which computed values are rounded if they are not quantized. */
  readonly rounded?: "F16";
  /** A computed matrix's values as blocks of a GGUF type. */
  readonly blocks?: ExactBlocks;
}

export type FloatType = "F32" | "F16" | "BF16";
export const FLOATS: readonly string[] = ["F32", "F16", "BF16"];
export const isFloat = (type: string): type is FloatType => FLOATS.includes(type);

/** Types of blocks that can hold other programs' quantized weights exactly. */
export type BlockType = "Q4_0" | "Q8_0" | "NVFP4";

/** MXFP4: E2M1 codes, eight per word, and E8M0 exponents, one per 32 columns. */
export interface Mxfp4Source {
  readonly kind: "MXFP4";
  readonly weight: SafeTensor; // U32 [rows, columns / 8], or the same bits in another shape
  readonly scales: SafeTensor; // U8 [rows, columns / 32]
}

/** The values of a matrix as blocks of a GGUF type. */
export type ExactBlocks = Mxfp4Source | {
  readonly kind: BlockType;
  readonly weight: SafeTensor; // [rows, columns], as the bytes of the blocks
  /** Factor by which all values of NVFP4 blocks are multiplied. */
  readonly factor?: number;
};

/** A matrix in a checkpoint. All its tensors have the same number of rows. */
export type MatrixSource =
  | { readonly kind: FloatType; readonly weight: SafeTensor } // [rows, columns]
  | ExactBlocks
  | {
    /** MLX's affine format: unsigned codes, packed from the low bits of each word. A value is scale x code + bias. */
    readonly kind: "affine";
    readonly bits: number;
    /** Number of columns that share a scale and a bias. */
    readonly group: number;
    readonly weight: SafeTensor; // U32 [rows, columns x bits / 32]
    readonly scales: SafeTensor; // float [rows, columns / group]
    readonly biases: SafeTensor; // float [rows, columns / group]
  };
