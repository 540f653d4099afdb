"""Step 3.5 and 3.7 Flash (modeling_step3p7.py) and Laguna (modeling_laguna.py): a gate per head, and heads that differ by layer."""
import numpy as np

from model import sigmoid, silu
from sigmoid_experts import Glm4Moe, UnitExperts
from yarn import yarn


class GatedHeads(Glm4Moe):
    feed_forward_norm = "ffn_norm"

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.heads, self.kv_heads = max(self.heads), max(self.kv_heads)
        n = self.key("rope.dimension_count_swa", self.rotated)
        self.near = float(self.key("rope.freq_base_swa")) ** -(np.arange(0, n, 2) / n)

    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 4 else 0

    def frequencies_of(self, layer):
        return self.near if self.window(layer) else self.frequencies

    def magnitude_of(self, layer):
        return 1.0 if self.window(layer) else self.magnitude

    def attention(self, x, layer, cache):
        self.heads, self.kv_heads = self.key("attention.head_count")[layer], self.key("attention.head_count_kv")[layer]
        return super().attention(x, layer, cache)

    def queries_keys_values(self, x, name):
        q, k, v = super().queries_keys_values(x, name)
        self.gates = self.gate(self.linear(x, f"{name}.attn_gate"))
        return q, k, v

    def linear(self, x, name):
        if name.endswith("attn_output"):
            x = (x.reshape(len(x), self.heads, -1) * self.gates[..., None]).reshape(x.shape)
        return super().linear(x, name)


class Step35(GatedHeads, UnitExperts):
    gate = staticmethod(sigmoid)

    def __init__(self, reader, context):
        super().__init__(reader, context)
        n = self.rotated // 2
        base = float(self.key("rope.freq_base")) ** -(np.arange(0, n, 2) / n)
        self.frequencies = base / self.weights["rope_freqs.weight"][:n // 2]

    def unit(self, gate, up, name, part):
        limit = float(self.key(f"swiglu_clamp_{part}")[int(name.split(".")[1])]) or np.inf
        return np.minimum(silu(gate), limit) * np.clip(up, -limit, limit)


class Laguna(GatedHeads):
    gate = staticmethod(lambda x: np.log1p(np.exp(x)))

    def __init__(self, reader, context):
        super().__init__(reader, context)
        yarn(self)
