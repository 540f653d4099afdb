"""Phi-3: fused matrices, and LongRoPE, whose factors are those of the context that the model runs in."""
import numpy as np

from model import Model, silu


class Phi3(Model):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        long = context > self.key("rope.scaling.original_context_length", self.key("context_length"))
        factors = self.weights.get("rope_factors_long.weight" if long else "rope_factors_short.weight")
        if factors is not None:
            self.frequencies = self.frequencies / factors
        self.magnitude = float(self.key("rope.scaling.attn_factor", 1.0))

    def queries_keys_values(self, x, name):
        heads = self.linear(x, f"{name}.attn_qkv").reshape(len(x), -1, self.head_dim)
        return np.split(heads, [self.heads, self.heads + self.kv_heads], axis=1)

    def feed_forward(self, x, name):
        gate, up = np.split(self.linear(x, f"{name}.ffn_up"), 2, axis=-1)
        return self.linear(silu(gate) * up, f"{name}.ffn_down")
