"""PLaMo 3, as mlx-lm's models/plamo3.py has it: norms on both sides of each half, heads normed, q, k and v in one matrix and so gate and
up. The last layer of so many sees everything; the others' rows see so many tokens before their own, by a rotary base of their own."""
import numpy as np

from phi3 import Phi3
from model import Model


class Plamo3(Model):
    queries_keys_values = Phi3.queries_keys_values
    feed_forward = Phi3.feed_forward

    def __init__(self, reader, context):
        super().__init__(reader, context)
        base = float(self.key("rope.freq_base_swa", 1e4))
        self.near = base ** -(np.arange(0, self.rotated, 2) / self.rotated)

    def slides(self, layer):
        return (layer + 1) % self.key("attention.sliding_window_pattern", 8) != 0

    def window(self, layer):
        return self.key("attention.sliding_window") + 1 if self.slides(layer) else 0

    def frequencies_of(self, layer):
        return self.near if self.slides(layer) else self.frequencies

    def post_norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights[name]

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        mixed = self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
        x = x + self.post_norm(mixed, f"{name}.post_attention_norm")
        made = self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)
        return x + self.post_norm(made, f"{name}.post_ffw_norm")
