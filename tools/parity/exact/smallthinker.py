"""SmallThinker (arXiv 2507.20984), as the authors' models for vLLM and SGLang have it: the router reads a layer's input, before its norm."""
import numpy as np

from model import Model, sigmoid
from qwen3moe import mixture


class SmallThinker(Model):
    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 4 else 0

    def frequencies_of(self, layer):
        return self.frequencies if self.window(layer) else None

    def layer(self, x, layer, cache):
        self.scores = sigmoid(self.linear(x, f"blk.{layer}.ffn_gate_inp"))
        return super().layer(x, layer, cache)

    def feed_forward(self, x, name):
        return mixture(self, x, name, self.scores, act=lambda y: np.maximum(y, 0))
