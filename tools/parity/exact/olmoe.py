"""OLMoE (arXiv 2409.02060): queries and keys are normed over all heads; experts are weighed by the softmax over all as it is."""
from model import Model, softmax
from post_normed import Olmo2
from qwen3moe import mixture


class Olmoe(Model):
    norm_heads = Olmo2.norm_heads

    def feed_forward(self, x, name):
        return mixture(self, x, name, softmax(self.linear(x, f"{name}.ffn_gate_inp")), divided=False)
