"""GLM-4: norms before and after each half, a part of each head rotated, gate and up in one matrix."""
import numpy as np

from llama import Llama
from model import silu


class Glm4(Llama):
    def feed_forward(self, x, name):
        gate, up = np.split(self.linear(x, f"{name}.ffn_up"), 2, axis=-1)
        return self.linear(silu(gate) * up, f"{name}.ffn_down")

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.norm(self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache), f"{name}.post_attention_norm")
        return x + self.norm(self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name), f"{name}.post_ffw_norm")
