"""Phi-3: fused matrices, and LongRoPE."""
import numpy as np

from longrope import longrope
from model import Model, silu


class Phi3(Model):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        longrope(self)

    def queries_keys_values(self, x, name):
        heads = self.linear(x, f"{name}.attn_qkv").reshape(len(x), -1, self.head_dim)
        return np.split(heads, [self.heads, self.heads + self.kv_heads], axis=1)

    def feed_forward(self, x, name):
        gate, up = np.split(self.linear(x, f"{name}.ffn_up"), 2, axis=-1)
        return self.linear(silu(gate) * up, f"{name}.ffn_down")
