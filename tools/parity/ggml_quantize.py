"""Quantizes matrices with ggml's quantizers, and dequantizes the results.

    python3 ggml_quantize.py LIBGGML_BASE FOLDER < matrices.jsonl

Each input line describes a matrix: {"type", "id", "rows", "columns", "bytes", "weighed"}. "type" and "id" name ggml's type.
"bytes" is the size of the quantized matrix, and "weighed" says whether the columns have weights.
FOLDER/values.f32 has the values of all matrices, in order. FOLDER/weights.f32 has the columns' weights.
The program writes the quantized matrices to FOLDER/blocks.bin and the dequantized values to FOLDER/restored.f32.
"""
import ctypes
import json
import sys

library, folder = sys.argv[1:]
ggml = ctypes.CDLL(library)
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
POINTERS = [ctypes.c_char_p, ctypes.c_char_p]
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, *POINTERS, *[ctypes.c_int64] * 3, ctypes.c_char_p]

with (
    open(f"{folder}/values.f32", "rb") as values,
    open(f"{folder}/weights.f32", "rb") as weights,
    open(f"{folder}/blocks.bin", "wb") as blocks,
    open(f"{folder}/restored.f32", "wb") as restored,
):
    for line in sys.stdin:
        matrix = json.loads(line)
        rows, columns, name = matrix["rows"], matrix["columns"], matrix["type"].lower().replace("_k", "_K")
        found = values.read(4 * rows * columns)
        weight = weights.read(4 * columns) if matrix["weighed"] else None
        block = ctypes.create_string_buffer(matrix["bytes"])
        size = ggml.ggml_quantize_chunk(matrix["id"], found, block, 0, rows, columns, weight)
        assert size == matrix["bytes"], matrix
        floats = ctypes.create_string_buffer(len(found))
        dequantize = ggml[f"dequantize_row_{name}"]
        dequantize.argtypes = [*POINTERS, ctypes.c_int64]
        dequantize(block, floats, rows * columns)
        blocks.write(block)
        restored.write(floats)
