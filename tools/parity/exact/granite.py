"""Granite: Llama with multipliers, and a divisor of the logits."""
from llama import Llama
from qwen3moe import Qwen3Moe


class Granite(Llama):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.scale = float(self.key("attention.scale", self.scale))
        self.residual = float(self.key("residual_scale"))

    def embed(self, tokens):
        return super().embed(tokens) * float(self.key("embedding_scale"))

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.residual * self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
        return x + self.residual * self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)

    def logits(self, rows):
        return super().logits(rows) / float(self.key("logit_scale"))


class GraniteMoe(Granite):
    """Experts in place of the feed-forward, and one that takes all rows where the file has it."""

    def feed_forward(self, x, name):
        chosen = Qwen3Moe.feed_forward(self, x, name)
        if f"{name}.ffn_gate_shexp.weight" not in self.weights:
            return chosen
        return chosen + super().feed_forward(x, name, "_shexp")
