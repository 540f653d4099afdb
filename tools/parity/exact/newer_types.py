"""Q1_0 and Q2_0, which the package gguf 0.19.0 cannot dequantise; it does not know the id of Q2_0 either."""
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants


def add_type(name, value, sizes):
    if value in GGMLQuantizationType._value2member_map_:
        return GGMLQuantizationType(value)
    member = int.__new__(GGMLQuantizationType, value)
    member._name_, member._value_ = name, value
    GGMLQuantizationType._value2member_map_[value] = member
    GGML_QUANT_SIZES[member] = sizes
    return member


def scaled(blocks, bits, offset):
    """Scale * (code - offset), where a byte holds its first code in its lowest bits."""
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    codes = blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1
    return scales * (codes.reshape(len(blocks), -1).astype(np.float32) - offset)


class Q1_0(quants.__Quant, qtype=add_type("Q1_0", 41, (128, 18))):
    @classmethod
    def dequantize_blocks(cls, blocks):
        return 2 * scaled(blocks, 1, 0.5)


class Q2_0(quants.__Quant, qtype=add_type("Q2_0", 42, (64, 18))):
    @classmethod
    def dequantize_blocks(cls, blocks):
        return scaled(blocks, 2, 1)
