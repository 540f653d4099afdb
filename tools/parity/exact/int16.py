"""What attention rounds on the CPU: keys, values, queries and weights become integers of 16 bits under scales, small enough for their
products to be added up in 32 bits. float64 in and out."""
import numpy as np

MOST = 32_766  # the largest code
NORM, DIMENSIONS = 46_000, 32  # the norm of so many dimensions' codes, of a key or a query, at most
SUM, POSITIONS, CHUNK = 65_500, 16, 128  # the sum of the codes of so many weights, at most; positions whose weights share a scale


def keys(x):
    """(tokens, heads, head dim)"""
    x = finite(x)
    return in_codes(x, upper_half(norm_scale(x)))


def values(x):
    """(tokens, heads, head dim); and their scales: (tokens, heads)"""
    x = finite(x)
    scale = upper_half(largest(x) / MOST)
    return in_codes(x, scale), scale[..., 0]


def queries(x):
    return in_codes(x, norm_scale(x))


def weights(x, scales):
    """Of positions whose values have those scales, which the weights take on: (KV heads, queries a KV head, tokens, seen)."""
    seen, scales = x.shape[-1], scales.T[:, None, None]
    parts = padded(x * scales, CHUNK).reshape(*x.shape[:-1], -1, CHUNK // POSITIONS, POSITIONS)
    scale = np.maximum(parts.sum(axis=-1).max(axis=-1) / SUM, parts.max(axis=(-1, -2)) / MOST)[..., None, None]
    codes = in_codes(parts, scale).reshape(*x.shape[:-1], -1)[..., :seen]
    return np.divide(codes, scales, out=np.zeros_like(x), where=scales > 0)


def finite(x):
    return np.clip(x.astype(np.float32).astype(np.float64), -65_504, 65_504)


def norm_scale(x):
    segments = padded(x, DIMENSIONS).reshape(*x.shape[:-1], -1, DIMENSIONS)
    norm = np.sqrt((segments * segments).sum(axis=-1)).max(axis=-1, keepdims=True)
    return np.maximum(norm / NORM, largest(x) / MOST)


def largest(x):
    return np.abs(x).max(axis=-1, keepdims=True)


def padded(x, size):
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % size)])


def upper_half(scale):
    """The least number not below that is a float whose lower 16 bits are 0: the upper ones are kept."""
    bits = scale.astype(np.float32).view(np.uint32)
    return ((bits + 0xffff) & 0xffff0000).astype(np.uint32).view(np.float32).astype(np.float64)


def in_codes(x, scale):
    return np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)) * scale
