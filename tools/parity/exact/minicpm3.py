"""MiniCPM3: DeepSeek's attention in a dense model. One tensor has the matrices for each head's keys and values. The file does not contain the scales."""
import numpy as np

from deepseek2 import DeepSeek2
from longrope import longrope
from model import Model


class MiniCpm3(DeepSeek2):
    interleaved = False

    def __init__(self, reader, context):
        Model.__init__(self, reader, context)
        longrope(self)
        self.rank, self.key_dim = self.key("attention.kv_lora_rank"), self.head_dim
        self.width = self.key("embedding_length")
        self.value_dim = self.key("attention.value_length", self.width // self.heads)
        plain = self.key_dim - self.rotated
        for layer in range(self.layers):
            both = self.weights.pop(f"blk.{layer}.attn_kv_b.weight").reshape(self.heads, -1, self.rank)
            self.weights[f"blk.{layer}.attn_k_b.weight"] = both[:, :plain].transpose(0, 2, 1)
            self.weights[f"blk.{layer}.attn_v_b.weight"] = both[:, plain:]
        self.residual = 1.4 / np.sqrt(self.layers)

    def embed(self, tokens):
        return 12 * super().embed(tokens)

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.residual * self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
        return x + self.residual * self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)

    def logits(self, rows):
        return super().logits(rows) * 256 / self.width
