"""GPT-NeoX and Pythia (transformers, models/gpt_neox), Phi-2 (models/phi), and StableLM (models/stablelm)."""
import numpy as np

from layer_normed import StarCoder2
from model import Model


class GptNeoX(StarCoder2):
    """Queries, keys and values in one matrix; both halves read the same rows, each through a norm of its own."""

    def queries_keys_values(self, x, name):
        if f"{name}.attn_qkv.weight" not in self.weights:
            return super().queries_keys_values(x, name)
        heads = self.linear(x, f"{name}.attn_qkv").reshape(len(x), -1, self.head_dim)
        return np.split(heads, [self.heads, self.heads + self.kv_heads], axis=1)

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        if not self.key("use_parallel_residual"):
            return super().layer(x, layer, cache)
        attention = self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
        return x + attention + self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)


class Phi2(GptNeoX):
    """Both halves read what one norm makes of a layer's rows."""

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        normed = self.norm(x, f"{name}.attn_norm")
        return x + self.mix(normed, layer, cache) + self.feed_forward(normed, name)


class StableLm(GptNeoX):
    """SwiGLU behind attention; without a norm of its own it reads attention's input."""
    feed_forward = Model.feed_forward

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        normed = self.norm(x, f"{name}.attn_norm")
        mixed = x + self.mix(normed, layer, cache)
        if f"{name}.ffn_norm.weight" in self.weights:
            normed = self.norm(mixed, f"{name}.ffn_norm")
        return mixed + self.feed_forward(normed, name)
